"""
The daemons of all machines, as the database knows them: what each has told last, and when; and the
settings that they share.

`told_status` reads the status document of a row of `pgflowd.daemons`, which any worker's role may
write. It may come from another version, or from somebody who wants to do harm: what is returned has
each key that pages and screens use, with a value of its type and of a bounded size, and no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from uuid import UUID

from pgflowd.core.documents import (
    SCHEMA_VERSION,
    DocumentField,
    DocumentOf,
    ListColumn,
    Named,
    Presence,
    Words,
    fields_of,
    is_document,
)
from pgflowd.core.documents.daemon import DaemonStatus
from pgflowd.core.metrics.definitions import is_number
from pgflowd.core.statuses import ChildState, DaemonState, DatabaseState
from pgflowd.core.text import counted, duration

ENDING = (DaemonState.DRAINING, DaemonState.STOPPING)
_TEXTS = ("problems", "error", "exits")  # the keys of a status document that have free texts


@dataclass(frozen=True)
class ListedDaemon:
    """One start of a daemon on a machine."""

    daemon_id: Annotated[UUID, Named("id"), "of this start of the daemon"]
    name: Annotated[str, ListColumn("NAME")]
    host: Annotated[str, ListColumn("HOST")]
    pid: int
    version: Annotated[str, ListColumn("VERSION")]
    started_at: datetime
    heartbeat_at: Annotated[datetime, "when it has told how it is", ListColumn("HEARTBEAT")]
    age_s: Annotated[float, "how long ago that is, by the database's clock"]
    state: Annotated[DaemonState, "as it has told last", ListColumn("STATE")]
    is_silent: Annotated[
        bool, "it has told nothing for longer than it should: it was killed, or lost the database"
    ]
    living_workers: Annotated[
        int | None,
        "of one that is silent or ends: how many of its workers have sent a heartbeat in the last"
        " 30 seconds",
    ]
    held_tasks: Annotated[
        int | None, "of such a one: how many tasks they have begun and not reported"
    ]
    lapses_in_s: Annotated[
        float | None, "of such a one: when the last of their leases lapses; negative if it has"
    ]
    status: Annotated[Mapping[str, Any], DocumentOf(DaemonStatus), "what `status` prints there"]

    @property
    def place(self) -> str:
        return f"{self.name}@{self.host}"

    @property
    def up_s(self) -> Annotated[float | None, ListColumn("UP")]:
        """How long it has run; of a silent one nobody knows."""
        return None if self.is_silent else float(self.status["up_s"]) + self.age_s

    @property
    def flows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status["flows"]
        return found

    @property
    def flow_states(self) -> Annotated[dict[str, int], ListColumn("FLOWS")]:
        """How many of its flows are in each state; those that are well come first."""
        states = Counter(flow["state"] for flow in self.flows)
        well = [state for state in (ChildState.UP.value, ChildState.ASLEEP.value) if states[state]]
        return {state: states[state] for state in [*well, *sorted(states.keys() - well)]}

    @property
    def running(self) -> Annotated[int, ListColumn("RUNNING")]:
        """The tasks at work."""
        return sum(flow["running"] for flow in self.flows)

    @property
    def most_running(self) -> int:
        """How many tasks may be at work at once."""
        return sum(flow["max_concurrency"] or 0 for flow in self.flows)

    @property
    def restarts(self) -> Annotated[tuple[int, int], ListColumn("RESTARTS")]:
        """How many restarts there were lately, and how many may be."""
        supervisor = self.status["supervisor"]
        return supervisor["restarts"], supervisor["max_restarts"]

    @property
    def database(self) -> Annotated[dict[str, Any], ListColumn("DATABASE")]:
        found: dict[str, Any] = self.status["database"]
        return found

    @property
    def problems(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status["problems"]
        return found


def silence(daemon: ListedDaemon, *, is_alone: bool) -> str:
    """What became of a silent daemon, and what happens with its tasks. `is_alone`: none lives."""
    text = f"no heartbeat for {duration(round(daemon.age_s))} (was {daemon.state})."
    tasks, left_s = daemon.held_tasks or 0, daemon.lapses_in_s
    whose = f"Its {counted(tasks, 'task')} {'is' if tasks == 1 else 'are'}"
    lapse = "its lease lapses" if tasks == 1 else "their leases lapse"
    if daemon.living_workers:
        workers = counted(daemon.living_workers, "worker")
        lives = "lives" if daemon.living_workers == 1 else "live"
        return f"{text} {workers} of it {lives}: see `pgflowd status` on {daemon.host}."
    if not tasks:
        return f"{text} It has left no task behind."
    if is_alone:
        return f"{text} {whose} recovered when a daemon runs: none does."
    if left_s is not None and left_s > 0:
        return f"{text} {whose} recovered when {lapse}, in {duration(max(1, round(left_s)))}."
    return f"{text} {whose} recovered by the next sweep."


def database_text(daemon: ListedDaemon) -> str:
    """How far its database is away, and by how much the clocks differ; empty if it is not known."""
    rtt_s, skew_s = daemon.database["rtt_s"], daemon.database["clock_skew_s"]
    if daemon.database["state"] == DatabaseState.DOWN:
        return str(DatabaseState.DOWN)
    parts = [] if rtt_s is None else [duration(rtt_s)]
    if skew_s is not None and round(skew_s * 1000):
        parts.append(f"clock {round(skew_s * 1000):+} ms")
    return ", ".join(parts)


def is_alone(daemons: Sequence[ListedDaemon]) -> bool:
    """Whether none of them lives."""
    return all(each.is_silent for each in daemons)


def stored(status: Any, hide: Callable[[str], str], *, is_text: bool = False) -> Any:
    """
    A status document as the database takes it: it has no numbers without an end, and no texts with
    a zero or half a character. Secrets in texts of people are hidden, as in the log.
    """
    if isinstance(status, dict):
        return {
            key: stored(value, hide, is_text=is_text or key in _TEXTS)
            for key, value in status.items()
        }
    if isinstance(status, list):
        return [stored(each, hide, is_text=is_text) for each in status]
    if isinstance(status, str):
        text = status.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
        return hide(text) if is_text else text
    return None if isinstance(status, float) and not isfinite(status) else status


_MOST_CHARS = 1000  # of a text; SQL cuts those of problems before they travel
_MOST_MEMBERS = 100  # of an object with any keys, and of a list of texts
_MOST = 1e15  # of a number: what is more cannot be meant
_ODD: Mapping[Any, str] = {DaemonState: DaemonState.DEGRADED, DatabaseState: DatabaseState.UNKNOWN}


def told_status(document: Any) -> dict[str, Any]:
    """
    The document as `status --json` has it, but for the id and the start, which the row knows.

    What is odd in it is left out, null, zero or empty; an odd state is degraded or disabled.
    """
    return {"schema_version": SCHEMA_VERSION, **_object(DaemonStatus, document)}


def _object(kind: Any, value: Any) -> dict[str, Any]:
    given = value if isinstance(value, Mapping) else {}
    read: dict[str, Any] = {}
    for field in fields_of(kind):
        if field.mark is Presence.INLINE:
            read |= _object(field.type, given)
        else:
            read[field.key] = _field(field, given.get(field.key))
    return read


def _field(field: DocumentField, value: Any) -> Any:
    for note in field.notes:
        if isinstance(note, Words):
            known = isinstance(value, str) and value in note
            return value if known else ChildState.DISABLED.value
    if "uuid" in field.notes:
        return _id(value)
    return _value(field.type, value)


def _value(kind: Any, value: Any) -> Any:
    """The value as one of this type."""
    if get_origin(kind) in (Union, UnionType):
        (inner,) = [each for each in get_args(kind) if each is not NoneType]
        is_there = isinstance(value, str if inner is str else Mapping)
        if inner in (int, float):
            is_there = _number(value) is not None
        return _value(inner, value) if is_there else None
    if is_document(kind):
        return _object(kind, value)
    if kind is UUID:
        return _id(value)
    if kind in (str, datetime):
        return value[:_MOST_CHARS] if isinstance(value, str) else ""
    if kind is int:
        return int(_number(value) or 0)
    if kind is float:
        return float(_number(value) or 0)
    if isinstance(kind, type) and issubclass(kind, Enum):
        known = isinstance(value, str) and value in [str(word) for word in kind]
        return value if known else _ODD[kind]
    (item,) = get_args(kind)[-1:]
    if get_origin(kind) is dict:  # numbers, by what they count
        found = list(value.items())[:_MOST_MEMBERS] if isinstance(value, Mapping) else []
        return {_value(str, key)[:40]: _value(item, one) for key, one in found}
    found = value if isinstance(value, list) else []
    if item is str:
        return [_value(str, one) for one in found[-_MOST_MEMBERS:] if isinstance(one, str)]
    return [_value(item, one) for one in found if isinstance(one, Mapping)]


def _number(value: Any) -> int | float | None:
    return value if is_number(value) and abs(value) < _MOST and isfinite(value) else None


def _id(value: Any) -> str | None:
    try:
        return str(UUID(value)) if isinstance(value, str) else None
    except ValueError:
        return None


@dataclass(frozen=True)
class SharedSetting:
    """`changed_by` and `changed_at` are None for one that has its default."""

    name: str
    value: Any
    takes: Annotated[str, "which values it takes"]
    means: Annotated[str, "what it does"]
    changed_by: str | None
    changed_at: Annotated[datetime | None, "when; null if it has its default"]


@dataclass(frozen=True)
class Migrated:
    """The result of a migrate, or of a dry run."""

    before: Annotated[int | None, "the version of the schema before"]
    after: Annotated[int, "the version now"]
    migrations: Annotated[list[str], "what was applied"]
    adopted: Annotated[
        str | None, "the edition of schema `pgflow` whose functions were replaced; null if none was"
    ]
    replaced: Annotated[list[str], "these functions"]
    dry_run: bool
    is_repeated: Annotated[
        bool, "whether nothing had changed since the last one, so that nothing was applied again"
    ] = False
