"""
The messages between the supervisor and its children, as JSON.

A message is a small dataclass; on the channel it is an object whose key `type` is the name of its
class. Bytes that are not a message decode to an UnreadableMessage, so the reader decides how
to go on. `core.supervision.kinds` lists which child sends and receives which. Pure.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any, ClassVar, dataclass_transform, get_args, get_origin, get_type_hints

from pgflowd.core.json import COMPACT, Encoder, loads

MAX_MESSAGE_BYTES = 64 * 1024  # bytes of one message


@dataclass_transform(frozen_default=True)
class Message:
    """
    The base of all messages, which makes a frozen dataclass of each. A `droppable` one is lost when
    the channel is full.
    """

    droppable: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class Ready(Message):
    """The child is up. A worker sends its id in the database."""

    worker_id: str | None = None


class Waiting(Message):
    """The child waits, for example for the "database"; None: it goes on. Meanwhile its
    `start_timeout` does not run."""

    what: str | None = "database"


class Heartbeat(Message):
    """The child is alive, and these are its numbers; each key replaces the earlier value."""

    droppable: ClassVar[bool] = True
    numbers: dict[str, Any] = field(default_factory=dict)


class Wake(Message):
    """Claim now, or wake up. Listener and sweeper send the name of a queue; the listener None for
    all workers, as notifications may have been lost."""

    droppable: ClassVar[bool] = True
    slug: str | None = None


class Follow(Message):
    """A client follows the output of this run's handlers. From the listener, for workers."""

    droppable: ClassVar[bool] = True
    run_id: str


class MakeRoom(Message):
    """No process can be started: end idle runners. From a worker, for the others."""

    droppable: ClassVar[bool] = True


class HaveRoom(Message):
    """A runner was ended to make room. From a worker, for the others."""

    droppable: ClassVar[bool] = True


class Failed(Message):
    """The child ends with 78 (another try would not help) or 70 (a bug in pgflowd)."""

    code: str
    text: str


class Leaving(Message):
    """The child has drained and ends with 10: start another one."""

    why: str


class FallingAsleep(Message):
    """The worker has nothing to do, and ends with 11: start it when there is work.

    `next_due_at` is when its next hidden message becomes visible, on the monotonic clock, which
    all processes of a machine share; its queue is to be looked at every `look_every_s`.
    """

    look_every_s: float
    next_due_at: float | None = None


class Released(Message):
    """The tasks of an ended worker are in the queue again: the sweeper's answer to WorkerEnded."""

    worker_id: str
    tasks: int = 0


class Found(Message):
    """A part of what a discovery found, which is one JSON text in all."""

    part: str


class Drain(Message):
    """Claim nothing more, finish the running tasks, then end. After `within_s` seconds quick
    stop; None: no limit."""

    within_s: float | None = None


class QuickStop(Message):
    """Claim nothing more, end the runners, report, release the rest, end."""


class WorkerStarted(Message):
    """This worker is up: renew its row from now on. For the sweeper."""

    worker_id: str


class WorkerStopped(Message):
    """This worker has ended as it was asked to: its row needs no renewal. For the sweeper."""

    worker_id: str


class WorkerStanding(Message):
    """The row of a worker that does not renew it itself, and what waits in its queue. From the
    sweeper, for that worker."""

    droppable: ClassVar[bool] = True
    worker_id: str
    row: str
    queued: int = 0
    oldest_queued_s: float | None = None
    due_in_s: float | None = None
    oldest_run: str | None = None


class SleepIfIdle(Message):
    """Fall asleep now, unless there is work. For a worker, whose place another one needs."""


class Asleep(Message):
    """This worker sleeps. For the sweeper: renew its row, look at its queue now and then, and
    answer Wake if a message is visible, NextDue if one will be."""

    queue: str
    worker_id: str
    look_every_s: float


class Awake(Message):
    """The worker of this queue sleeps no more. For the sweeper."""

    queue: str


class LookAtQueues(Message):
    """Notifications may have been missed: look at all queues of sleeping workers now."""


class LookAtDue(Message):
    """Something is due, or notifications may have been missed: see to it now. From the listener,
    for the sweeper."""

    droppable: ClassVar[bool] = True


class NextDue(Message):
    """When the next message in the queue of a sleeping worker becomes visible; monotonic."""

    queue: str
    at: float


class ServeVersions(Message):
    """The flows of the versions of a name that are to be served: the current one, and those with
    open runs, oldest first. From the listener before it is ready, and from the sweeper."""

    name: str
    flows: dict[str, int | None]  # how many open runs each has; None for the current one


class LookAtVersions(Message):
    """Versions of a flow were changed: read them. From the listener, for the sweeper."""


class LookAtDaemons(Message):
    """Somebody looks at the daemons: write this one's row more often. From the listener, for the
    sweeper."""

    droppable: ClassVar[bool] = True


class StatusWanted(Message):
    """The status of the daemon is to be written. From the sweeper."""


class StatusPart(Message):
    """A part of the daemon's status document, which is one JSON text in all. For the sweeper."""

    part: str
    is_last: bool


class ConnectionsLeft(Message):
    """How many connections the server has left. From the listener, before it is ready."""

    count: int


class ConnectionRefused(Message):
    """The server had no free connection. From a child; for the sweeper, which sees who has them."""

    droppable: ClassVar[bool] = True


class ConnectionWanted(Message):
    """A worker has long work, and wants a second connection."""


class ConnectionGranted(Message):
    """The worker may open a second connection."""


class ConnectionReturned(Message):
    """A worker has closed its second connection."""


class StayingAwake(Message):
    """A worker that was asked to fall asleep has work."""


class WorkerEnded(Message):
    """All processes of this worker are reaped: release its tasks and answer Released."""

    worker_id: str


def parts_of(text: str) -> list[str]:
    """A JSON text in parts that each fit into a message, where a quote takes two bytes more."""
    length = MAX_MESSAGE_BYTES // 4
    return [text[start : start + length] for start in range(0, len(text), length)]


@dataclass(frozen=True)
class UnreadableMessage:
    """Bytes that are not a message."""

    why: str


KINDS = {kind.__name__: kind for kind in Message.__subclasses__()}


def _classes(wanted: Any) -> tuple[type, ...]:
    """Return the classes that a value may have."""
    if isinstance(wanted, types.UnionType):
        return tuple(one for each in get_args(wanted) for one in _classes(each))
    return (int, float) if wanted is float else (get_origin(wanted) or wanted,)


_CLASSES = {
    kind: {name: _classes(hint) for name, hint in hints.items() if name != "droppable"}
    for kind, hints in ((kind, get_type_hints(kind)) for kind in KINDS.values())
}
_dumps = Encoder(separators=COMPACT, default=str)


def encode(message: Message) -> bytes:
    """Return the bytes of a message."""
    wire = {"type": type(message).__name__, **vars(message)}
    return _dumps(wire).encode()


def decode(data: bytes) -> Message | UnreadableMessage:
    """Return the message, or an UnreadableMessage; never raise."""
    try:
        values = loads(data)
    except (ValueError, RecursionError):
        return UnreadableMessage(f"not JSON: {data[:80]!r}")
    if not isinstance(values, dict):
        return UnreadableMessage("not a JSON object")
    kind = KINDS.get(str(values.pop("type", "")))
    if kind is None:
        return UnreadableMessage(f"an unknown kind of message: {data[:80]!r}")
    classes = _CLASSES[kind]
    if not values.keys() <= classes.keys():
        return UnreadableMessage(
            f"{kind.__name__}: unknown {sorted(values.keys() - classes.keys())}"
        )
    bad = [
        name
        for name, value in values.items()  # a bool is not an int here
        if not isinstance(value, classes[name])
        or (type(value) is bool and bool not in classes[name])
    ]
    if bad:
        return UnreadableMessage(f"{kind.__name__}: wrong type of {bad}")
    try:
        return kind(**values)
    except TypeError as error:
        return UnreadableMessage(f"{kind.__name__}: {error}")
