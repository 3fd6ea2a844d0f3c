"""The status of a daemon: what `pgflowd status --json` prints; `daemon_status` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, NamedTuple, TypedDict
from uuid import UUID

from pgflowd.core.documents import Format, Inline, ListColumn, Presence, Words, number
from pgflowd.core.statuses import ChildState, DaemonState, DatabaseState

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
