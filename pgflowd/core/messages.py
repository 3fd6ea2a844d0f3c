"""
Messages: what the supervisor and its children say to each other, as JSON.

A child says Ready, Waiting, Beat, Wake, Follow, Failed, Leaving, and (the sweeper) Released and
(the discovery) Found; it is told Wake, Follow, Drain, QuickStop, and (the sweeper) Dead. A message
is a small dataclass; on the wire it is an object whose key `say` is its name. What cannot be read
is a Garbage, a value like any other, so the reader decides what it means. Pure.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

from pgflowd.core.json.unpatched import COMPACT, Encoder, loads

LARGEST = 64 * 1024  # bytes of one message


@dataclass(frozen=True)
class Message:
    """The base of all messages. One that is `droppable` may be lost when a pipe is full."""

    droppable: ClassVar[bool] = False


@dataclass(frozen=True)
class Ready(Message):
    """I am up; a worker tells its id in the database."""

    worker_id: str | None = None


@dataclass(frozen=True)
class Waiting(Message):
    """I wait, for example for the "database"; None: not any more. Meanwhile my start's clock
    stands still."""

    what: str | None = "database"


@dataclass(frozen=True)
class Heartbeat(Message):
    """I live, and these are my numbers; each key replaces the one before."""

    droppable: ClassVar[bool] = True
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Wake(Message):
    """Look for work now. From the listener with the queue's name, or None for all workers."""

    droppable: ClassVar[bool] = True
    slug: str | None = None


@dataclass(frozen=True)
class Follow(Message):
    """Somebody wants to see what this run's handlers print. From the listener, for workers."""

    droppable: ClassVar[bool] = True
    run_id: str


@dataclass(frozen=True)
class Failed(Message):
    """I cannot go on, and exit 78 (trying again would not help) or 70 (a bug of ours)."""

    code: str
    text: str


@dataclass(frozen=True)
class Leaving(Message):
    """Replace me: I have drained and exit 10."""

    why: str


@dataclass(frozen=True)
class Released(Message):
    """The tasks of a dead worker are back in the queue: the sweeper's answer to Dead."""

    worker_id: str
    tasks: int = 0


@dataclass(frozen=True)
class Found(Message):
    """One finding of the discovery: a flow, or all that is wrong with an entry."""

    entry: str
    slug: str | None = None
    module: str | None = None
    fingerprint: str | None = None
    problems: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Drain(Message):
    """Claim nothing more, finish what runs, then end. After `within_s` seconds quick stop;
    None: wait for as long as the tasks may take."""

    within_s: float | None = None


@dataclass(frozen=True)
class QuickStop(Message):
    """Claim nothing more, end the runners, report, release the rest, end."""


@dataclass(frozen=True)
class ConnectionClosed(Message):
    """This worker's processes are reaped; release its tasks and answer Released."""

    worker_id: str


@dataclass(frozen=True)
class UnreadableMessage:
    """What came was no message of ours."""

    why: str


KINDS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        Ready,
        Waiting,
        Heartbeat,
        Wake,
        Follow,
        Failed,
        Leaving,
        Released,
        Found,
        Drain,
        QuickStop,
        ConnectionClosed,
    )
}


def _classes(wanted: Any) -> tuple[type, ...]:
    """The classes of which a value may be."""
    if get_origin(wanted) in (Union, types.UnionType):
        return tuple(one for each in get_args(wanted) for one in _classes(each))
    return (int, float) if wanted is float else (get_origin(wanted) or wanted,)


_CLASSES = {
    kind: {each.name: _classes(get_type_hints(kind)[each.name]) for each in fields(kind)}
    for kind in KINDS.values()
}
_dumps = Encoder(separators=COMPACT, default=str)


def encode(message: Message) -> bytes:
    """Return the message for the wire."""
    said = {"say": type(message).__name__, **vars(message)}
    return _dumps(said).encode()


def decode(data: bytes) -> Message | UnreadableMessage:
    """Return the message, or Garbage; never raise."""
    try:
        said = loads(data)
    except (ValueError, RecursionError):
        return UnreadableMessage(f"no JSON: {data[:80]!r}")
    if not isinstance(said, dict):
        return UnreadableMessage("no object")
    kind = KINDS.get(str(said.pop("say", "")))
    if kind is None:
        return UnreadableMessage(f"an unknown kind of message: {data[:80]!r}")
    classes = _CLASSES[kind]
    if not said.keys() <= classes.keys():
        return UnreadableMessage(f"{kind.__name__}: unknown {sorted(said.keys() - classes.keys())}")
    bad = [name for name, value in said.items() if not _fits(value, classes[name])]
    if bad:
        return UnreadableMessage(f"{kind.__name__}: wrong type of {bad}")
    try:
        return kind(**said)
    except TypeError as error:
        return UnreadableMessage(f"{kind.__name__}: {error}")


def _fits(value: object, classes: tuple[type, ...]) -> bool:
    """A bool is an int to Python, and not to us."""
    return isinstance(value, classes) and (type(value) is not bool or bool in classes)
