"""
The status of a daemon: what `pgflowd status --json` prints; `daemon_status` makes it. The daemons
of all machines, as the database knows them: what each has told last, and when; and the settings
that they share.

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
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, Union, get_args, get_origin
from uuid import UUID

from pgflowd.core.documents import (
    SCHEMA_VERSION,
    DocumentOf,
    Format,
    Inline,
    ListColumn,
    Named,
    Presence,
    Words,
    fields_of,
    is_document,
    number,
)
from pgflowd.core.metrics.definitions import is_number
from pgflowd.core.statuses import ChildState, DaemonState, DatabaseState
from pgflowd.core.text import counted, duration

NOT_RUNNING = "not_running"  # the state where no daemon runs
WAITING = "waiting"  # for a place in the budget of connections
ChildWord = Annotated[
    str,
    Words((*(each for each in ChildState if each is not ChildState.IDLE), WAITING)),
    "`starting`: it is not ready yet; `up`: it works; `restarting`: it ended, and is started again;"
    " `draining`: it finishes running tasks, then ends; `stopping`: it ends; `asleep`: it has no"
    " process, since there is nothing to do; `failed`: it is parked: it cannot start, or crashed"
    " too often; `disabled`: it is not to run; `waiting`: it waits for a connection",
]


class Since(NamedTuple):
    """The field is the time since a moment; the child has sent that under this key."""

    key: str


class Total(NamedTuple):
    """The field has what all children sent, added up by key; these keys always."""

    keys: tuple[str, ...]


class ChildStatus(TypedDict):
    """A child of the supervisor, and its process. What a kind adds, it sends under these keys."""

    state: ChildWord
    pid: int | None
    up_s: float | None
    restarts: int


class ListenerStatus(ChildStatus):
    reconnects: Annotated[int, "how often it lost its connection"]
    last_notification_s: Annotated[
        float | None, "since the last notification", Since("last_notification_at")
    ]
    wakes_1m: Annotated[
        dict[str, int],
        "wakes of the last minute, by reason: `notification`, `fallback` and others",
        Total(("notification", "fallback")),
    ]


class SweeperStatus(ChildStatus):
    interval_s: Annotated[float | None, "between two sweeps"]
    last_sweep_s: Annotated[float | None, "since the last one", Since("last_sweep_at")]
    recovered_24h: Annotated[int | None, "how many tasks it queued again within a day"]
    given_up_24h: Annotated[int | None, "how many it failed for good"]
    due_late_s: Annotated[
        float | None, "for how long the first wait or run is due that was not processed"
    ]


class HttpStatus(ChildStatus):
    listen: Annotated[str | None, "where it listens"]
    requests: Annotated[int, "how many it answered"]
    last_request_s: Annotated[float | None, "since the last one", Since("last_request_at")]


class ExporterStatus(ChildStatus):
    endpoint: Annotated[str | None, "where the collector is"]
    spans: Annotated[dict[str, int], "how many were sent, and how many the collector refused"]
    queued: Annotated[int, "how many are to be sent"]


class SingleChildren(TypedDict):
    """A key for each kind of child without a group."""

    listener: Annotated[ListenerStatus, "the process that receives notifications"]
    sweeper: Annotated[SweeperStatus, "the process that recovers what others left"]
    http: Annotated[
        HttpStatus,
        "the process that answers for health and metrics; `disabled` without `[http] listen`",
    ]
    exporter: Annotated[
        ExporterStatus,
        "the process that sends traces; `disabled` without `[telemetry] traces`",
    ]


class StatusConnections(TypedDict):
    most: Annotated[int | None, "that it opens"]
    taken: Annotated[int, "how many are spoken for"]
    waiting: Annotated[int, "how many flows wait for one"]


class SupervisorStatus(TypedDict):
    strategy: Annotated[str, "what is started again with what"]
    restarts: Annotated[int, "how many within `max_period_s`"]
    max_restarts: Annotated[int, "how many are allowed in that time"]
    max_period_s: Annotated[float, "the window in which restarts are counted"]
    connections: Annotated[StatusConnections, "of the whole daemon"]


class DatabaseStatus(TypedDict):
    state: Annotated[DatabaseState, "whether it answers"]
    server: str | None
    place: Annotated[str | None, "host, port and name"]
    pgmq: str | None
    schema: Annotated[int | None, "the version of the schema"]
    rtt_s: Annotated[float | None, "the time of a round trip"]
    clock_skew_s: Annotated[float | None, "its clock less ours"]


class StatusProblem(TypedDict):
    """Something that is wrong, and the next step."""

    code: str | None
    flow: str | None
    text: Annotated[str, "what is wrong, to which thing, what was expected"]
    next: str | None


class FlowTrouble(TypedDict):
    code: str | None
    text: str


@dataclass(frozen=True)
class FlowStatus:
    """A flow that the daemon serves, and its worker. Numbers are those of its last heartbeat."""

    slug: Annotated[str, "the slug of the flow", ListColumn("FLOW")]
    undoes: Annotated[
        str | None,
        "the flow whose runs it undoes; on a screen such a flow is left out while it has nothing to"
        " do, unless with `-v`",
    ]
    old_version_of: Annotated[
        str | None,
        "the name of the flow of which it is an old version; null for others",
    ]
    open_runs: Annotated[
        int | None,
        "how many runs the old version still has, as of the last sweep; counting ends at 10,000 of"
        " its tasks; null for others",
    ]
    state: ChildWord
    pid: Annotated[int | None, ListColumn("WORKER")]
    up_s: float | None
    worker_id: Annotated[str | None, Format("uuid")]
    running: Annotated[int, ListColumn("RUNNING")]
    max_concurrency: Annotated[int | None, "how many tasks it executes at once"]
    queued: Annotated[int | None, number("QUEUED")]
    waiting: Annotated[
        int | None,
        "for a time or a signal, as of the last sweep, to 10,000",
        number("WAITING", is_rare=True),
    ]
    waits: Annotated[dict[str, int] | None, "their number by kind"]
    oldest_queued_s: Annotated[
        float | None, "how long the oldest queued task waits", number("OLDEST")
    ]
    oldest_running_s: Annotated[float | None, "how long the oldest running task has run"]
    completed_1m: Annotated[int | None, "tasks of the last minute that completed", number("OK 1m")]
    failed_1m: Annotated[int | None, "tasks of the last minute that failed", number("FAIL 1m")]
    p50_s: Annotated[float | None, "how long half of the tasks ran at most", number("P50")]
    p95_s: Annotated[float | None, "how long 95 of 100 ran at most", number("P95")]
    restarts: Annotated[int, number("RESTARTS")]
    error: Annotated[FlowTrouble | None, "why it is parked or cannot start"]
    zygote: Annotated[int | None, "the id of the process from which runners are forked"]
    runners: Annotated[int, "how many there are"]
    stuck: Annotated[int, "how many of them cannot be killed"]
    exits: Annotated[list[str], "how the last processes ended"]
    parked_s: Annotated[float | None, "for how long it is parked"]
    retry_in_s: Annotated[float | None, "until it is tried again"]
    asleep_s: Annotated[float | None, "for how long it sleeps"]
    next_due_in_s: Annotated[
        float | None, "until the next message of a sleeping flow becomes visible"
    ]
    import_s: Annotated[float | None, "how long the last import of its module took"]
    age_s: Annotated[float | None, "how old the oldest of these numbers is"]


@dataclass(frozen=True)
class DaemonStatus:
    """
    The status of a daemon. `tree` prints all of it, too. Without a daemon the exit code is 3;
    `status` then has the `state` `not_running`, and what only a daemon knows is null or missing.
    """

    id: Annotated[UUID, "of this start of the daemon"]
    name: Annotated[str, "its name in the config"]
    host: str
    version: str
    state: Annotated[
        DaemonState,
        "how it does; `degraded` while a child is neither up nor asleep nor wakes, or has a problem"
        " whose code begins with E",
    ]
    pid: int
    started_at: datetime
    up_s: float
    supervisor: Annotated[SupervisorStatus, "the process that starts the others"]
    database: Annotated[DatabaseStatus, "what the daemon knows of it"]
    singles: Inline[SingleChildren]
    flows: Annotated[list[FlowStatus], "those that it serves"]
    problems: Annotated[list[StatusProblem], "what somebody must solve"]


class IdleFlow(TypedDict):
    """A flow that no daemon serves."""

    slug: Annotated[str, "the slug of the flow"]
    state: Annotated[Literal["not_running"], "there is no daemon"]
    queued: int
    waiting: int
    waits: dict[str, int]
    oldest_queued_s: Annotated[float | None, "how long the oldest queued task waits"]


class KnownDatabase(TypedDict):
    state: Annotated[DatabaseState, "whether it answers"]
    server: str | None
    place: Annotated[str | None, "host, port and name"]
    schema: Annotated[int | None, Presence.UNKNOWN, "the version of the schema"]


class NoDaemonStatus(TypedDict):
    """The status where no daemon runs, from the database alone."""

    name: Annotated[str, "its name in the config"]
    state: Literal["not_running"]
    pid: None
    database: KnownDatabase
    flows: list[IdleFlow]
    problems: list[StatusProblem]


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
        return list(self.status["flows"])

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
        return dict(self.status["database"])

    @property
    def problems(self) -> list[dict[str, Any]]:
        return list(self.status["problems"])


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


@dataclass(frozen=True)
class Daemons:
    daemons: Annotated[Sequence[ListedDaemon], "those of all machines, as the database knows them"]

    def silence(self, daemon: ListedDaemon) -> str:
        """What became of one that is silent."""
        return silence(daemon, is_alone=all(each.is_silent for each in self.daemons))


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
        one = given.get(field.key)
        words = next((note for note in field.notes if isinstance(note, Words)), None)
        if field.mark is Presence.INLINE:
            read |= _object(field.type, given)
        elif words is not None:
            read[field.key] = one if one in words else ChildState.DISABLED.value
        else:
            read[field.key] = _id(one) if "uuid" in field.notes else _value(field.type, one)
    return read


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
    if kind in (int, float):
        return kind(_number(value) or 0)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return value if value in [str(word) for word in kind] else _ODD[kind]
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
