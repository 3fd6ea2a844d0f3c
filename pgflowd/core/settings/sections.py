"""
Defines the settings: the checked configuration, typed and frozen, with all keys and defaults.

Each class is a section of the file (config/pgflowd.toml) and each field a key
(`core.settings.keys`). `worker_for` returns the worker settings of one flow, with its overrides.
`origin_of` returns the place a value comes from. `core.settings.load` makes a Settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any

from pgflowd.core.settings.keys import (
    Origin,
    address,
    choice,
    duration,
    flows,
    levels,
    path,
    paths,
    secret,
    share,
    size,
    switch,
    text,
    texts,
    whole,
)
from pgflowd.core.settings.values import (
    BASE_PATH,
    ELSEWHERE,
    HEADER,
    HOST,
    NAME,
    NETWORK,
    TRACE_URL,
    WARNING,
    WORD,
    Address,
    Ref,
    parse_address,
)
from pgflowd.core.undo import PREFIX
from pgflowd.errors import Problem

LEAST_CONNECTIONS = 3  # of listener, sweeper and one worker
_MAX_31_BITS = "24d"  # PostgreSQL and Linux keep these in 31 bits of milliseconds


@dataclass(frozen=True)
class DaemonSettings:
    """The daemon itself, and the flows it serves."""

    name: str = text(
        "pgflowd", "in process titles, application_name, worker rows and logs", form=NAME
    )
    flows: tuple[str, ...] = flows(
        [], 'what to serve: "module" (every flow in it) or "module:name"; a daemon needs one'
    )
    python_path: tuple[str, ...] = paths([], "directories that are put first on the import path")
    definitions: str = choice(
        "create version verify recreate",
        "create adds missing flows and refuses changed shapes; version makes a changed shape the "
        "next version of its flow; verify writes nothing; recreate, "
        "in dev and demo only, deletes a changed flow with its runs and creates it again",
    )


@dataclass(frozen=True)
class DatabaseSettings:
    """Where the database is, and how long to wait for it."""

    url: Ref = secret(  # noqa: RUF009
        "",
        'empty: the libpq environment, service and password files; "cred:database_url" or '
        '"file:/run/secrets/url" keep the password out of this file and from handlers, which do '
        'not get the variable of "env:NAME" either',
    )
    listen_url: Ref = secret("", "for the listener, if url leads to a transaction pooler")  # noqa: RUF009
    max_connections: int = whole(
        0,
        "that the daemon opens at most, without those of handlers; listener, sweeper and one "
        "worker need 3; 0: half of what the server has left at the start, at least 8",
        low=LEAST_CONNECTIONS,
    )
    connect_timeout_s: float = duration("10s", "of one attempt to connect")
    statement_timeout_s: float = duration("30s", "of one statement", high=_MAX_31_BITS)
    tcp_user_timeout_s: float = duration(
        "20s", "until a lost server is noticed, by the idle listener too", high=_MAX_31_BITS
    )
    startup_wait_s: float = duration(
        "5m", 'for a database that is not up yet; "0s": fail at once', low="0s"
    )
    reconnect_min_s: float = duration("250ms", "the first wait before a reconnect, jittered")
    reconnect_max_s: float = duration("30s", "the longest wait before a reconnect")


@dataclass(frozen=True)
class WorkerSettings:
    """Every worker; [flows.SLUG] overrides any of these for one flow."""

    max_concurrency: int = whole(10, "tasks at once, on at most 1000 runners", high=10_000)
    batch_size: int = whole(
        100,
        "tasks of one claim: for free runners, and for those that are free within 20 ms",
        high=1000,
    )
    signal_strategy: str = choice(
        "notify polling", "notify: notifications wake the worker; polling: it checks its queue"
    )
    notify_throttle_s: float = duration(
        "250ms",
        'at most ten wakes per flow in this time and one at its end; "0s": no limit',
        low="0s",
    )
    notify_fallback_s: float = duration("30s", "claim anyway after this much silence", high="10m")
    poll_min_s: float = duration(
        "50ms", "polling: decorrelated jitter from here; again after work was found"
    )
    poll_max_s: float = duration("5s", "polling: decorrelated jitter up to here", high="5m")
    caps: tuple[str, ...] = texts(
        [], 'what it has, such as "gpu"; it may execute steps that need no more', form=WORD
    )
    sleep_after_s: float = duration(
        "5m",
        'a worker without work for so long ends until there is some; "0s": it never does',
        low="0s",
    )
    worker_name: str = text(
        "", "in worker rows, and in log records if it is set; empty: name and flow", form=NAME
    )
    heartbeat_interval_s: float = duration(
        "5s", "time between the heartbeats of a worker; at most a third of recovery.lease"
    )
    isolation: str = choice(
        "reuse task", "reuse: runners are used again; task: a fresh one per task"
    )
    tasks_per_runner: int = whole(
        1, "async handlers that share a runner and its event loop; 1: each has its own", high=1000
    )
    max_tasks_per_runner: int = whole(1000, "reuse: a runner is replaced after this many")
    runner_idle_s: float = duration("60s", "reuse: a runner ends after so long without a task")
    kill_grace_s: float = duration("2s", "from SIGTERM to SIGKILL", low="0s")
    max_output_bytes: int = size("16MiB", "of a task, as JSON")
    handler_output: str = choice(
        "capture inherit discard",
        "stdout and stderr of handlers; capture: line by line into the log; inherit: to those of "
        "the daemon; discard: nowhere",
    )
    keep_output: str = choice(
        "failures all off",
        "what handlers print and log is kept in the database, for `runs output`: of "
        "attempts that fail, of all, or of none",
    )
    oom_score_adj: int = whole(
        500, "of runners: the kernel chooses them first (Linux)", low=0, high=1000
    )
    max_restarts: int = whole(
        5, "of this worker in supervisor.max_period, then it is parked", low=0
    )
    backoff_min_s: float = duration("100ms", "the first wait before a restart", low="0s")
    backoff_max_s: float = duration("30s", "the longest wait before a restart")


@dataclass(frozen=True)
class FlowSettings(WorkerSettings):
    """One flow: any key of [worker], and whether it is served."""

    enabled: bool = switch(True, "false: the flow is not served")


@dataclass(frozen=True)
class SupervisorSettings:
    """Restarts, and how long things may take."""

    max_restarts: int = whole(20, "in max_period, then the daemon gives up with exit 1", low=0)
    max_period_s: float = duration(
        "60s", "the window in which restarts are counted, of workers too"
    )
    backoff_min_s: float = duration("100ms", "the first wait before a restart", low="0s")
    backoff_max_s: float = duration("2s", "the longest wait before a restart")
    start_timeout_s: float = duration("60s", "of one child, waiting for the database not counted")
    hang_timeout_s: float = duration(
        "60s",
        "a child without a heartbeat for so long is killed; more than database.statement_timeout "
        "and connect_timeout together",
    )
    drain_timeout_s: float = duration("60s", "then running tasks are released", low="0s")
    control: str = path(
        "", "the control socket, mode 0600; empty: NAME.sock in the runtime directory"
    )


@dataclass(frozen=True)
class RecoverySettings:
    """Tasks whose worker vanished."""

    recovery_interval_s: float = duration("15s", "time between two sweeps")
    lease_s: float = duration(
        "30s", "of a claimed task, renewed by heartbeats; when it lapses the task is recovered"
    )
    stale_threshold_s: float = duration(
        "60s", "a started task without a lease is stalled this long after its step's timeout"
    )


@dataclass(frozen=True)
class LoggingSettings:
    """The level, format and redaction of the log."""

    level: str = choice("info debug warning error", "the least important records that are logged")
    format: str = choice(
        "auto journal text json",
        "auto: journal if stderr is the journal, text on a terminal, else json",
    )
    levels: tuple[tuple[str, str], ...] = levels(
        "debug info warning error",
        'of loggers of libraries, as in { httpx = "warning" }; what level leaves out stays out',
    )
    payloads: bool = switch(False, "inputs and outputs in logs")
    redact: tuple[str, ...] = texts(
        ["password", "secret", "token", "authorization"], "keys whose values are never logged"
    )


@dataclass(frozen=True)
class HttpSettings:
    """Health and metrics over HTTP."""

    listen: str = address(
        "",
        'where /livez, /readyz and /metrics are: "127.0.0.1:7461" or "unix:PATH"; empty: nowhere',
    )
    token: Ref = secret(  # noqa: RUF009
        "",
        'who reads metrics and reasons sends it as "Bearer TOKEN"; it is elsewhere, as in '
        '"file:/etc/pgflowd/http_token"; needed where other machines reach listen',
        form=ELSEWHERE,
    )

    @property
    def address(self) -> Address | None:
        """Where to listen; None: nowhere."""
        return parse_address(self.listen) if self.listen else None


@dataclass(frozen=True)
class CheckSettings:
    """What `pgflowd check` finds."""

    ignore: tuple[str, ...] = texts(
        [], 'warnings that it leaves out, with --strict too, such as "W320"', form=WARNING
    )


@dataclass(frozen=True)
class TelemetrySettings:
    """Traces by OpenTelemetry, and what error trackers are told."""

    traces: str = choice(
        "off on", 'on: a trace for each run, by OpenTelemetry, which the extra "otel" brings'
    )
    service_name: str = text("", "of the spans; empty: pgflowd.name; OTEL_SERVICE_NAME wins")
    ratio: float = share(1.0, "of the runs whose caller has no trace; else that one decides")
    sentry: str = choice(
        "last every off",
        "the exceptions that Sentry gets, if the flow's module uses it: of the last attempt, of "
        "every one, or none",
    )
    trace_url: str = text(
        "", "of a trace, with {trace_id} in it, which `runs show` prints", form=TRACE_URL
    )

    @property
    def is_on(self) -> bool:
        """Whether there are traces."""
        return self.traces == "on"


@dataclass(frozen=True)
class WebSettings:
    """The dashboard: where it listens, who may see it, who may act."""

    listen: str = address(
        "127.0.0.1:7460", "where `pgflowd web` listens; others than loopback need a login"
    )
    url: Ref = secret(  # noqa: RUF009
        "", "the database, for reading, as a member of pgflow_viewer; empty: that of [database]"
    )
    operator_url: Ref = secret(  # noqa: RUF009
        "", "the database, for actions, as a member of pgflow_operator; empty: nobody acts"
    )
    auth: str = choice(
        "key password proxy none",
        "key: the link that is printed at the start; password: names and passwords; proxy: a proxy "
        "names the user; none: everybody who reaches it may look",
    )
    users: str = path("", "password: the file that `pgflowd web passwd NAME` writes")
    tokens: str = path("", "for programs: the file that `pgflowd web token NAME` writes")
    secret: str = path(
        "",
        "a file with what signs logins, mode 0600, the same for several web processes; empty: new "
        "at each start",
    )
    proxy_user: str = text("X-Forwarded-User", "proxy: the header that names the user", form=HEADER)
    operators: tuple[str, ...] = texts([], "proxy: the users that may act; others may look")
    trusted_proxies: tuple[str, ...] = texts(
        [], 'addresses, networks or "unix": whose headers X-Forwarded-… count', form=NETWORK
    )
    hosts: tuple[str, ...] = texts(
        [], "names by which browsers reach it, besides localhost and the address", form=HOST
    )
    base_path: str = text(
        "", "the path below which a proxy offers it, such as /flows", form=BASE_PATH
    )
    payloads: str = choice(
        "redacted hidden shown",
        "inputs and outputs on pages; redacted: without the keys of logging.redact; hidden: their "
        "sizes only",
    )

    @property
    def address(self) -> Address:
        """Where to listen."""
        return parse_address(self.listen)


@dataclass(frozen=True)
class Overrides:
    """The keys of [flows.SLUG]; `worker` are fields of WorkerSettings."""

    slug: str
    enabled: bool = True
    worker: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """The whole configuration, checked."""

    pgflowd: DaemonSettings = DaemonSettings()
    database: DatabaseSettings = DatabaseSettings()
    worker: WorkerSettings = WorkerSettings()
    supervisor: SupervisorSettings = SupervisorSettings()
    recovery: RecoverySettings = RecoverySettings()
    logging: LoggingSettings = LoggingSettings()
    http: HttpSettings = HttpSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    check: CheckSettings = CheckSettings()
    web: WebSettings = WebSettings()
    flows: Mapping[str, Overrides] = field(default_factory=dict)  # by slug in lower case
    file: str | None = None  # the config file that was read
    origins: Mapping[tuple[str, ...], Origin] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()

    def worker_for(self, slug: str) -> WorkerSettings:
        """Return the worker settings of one flow."""
        overrides = self._overrides_of(slug)
        return replace(self.worker, **overrides.worker) if overrides else self.worker

    def is_enabled(self, slug: str) -> bool:
        overrides = self._overrides_of(slug)
        return overrides.enabled if overrides else True

    def _overrides_of(self, slug: str) -> Overrides | None:
        """Return those of a flow; the one that undoes its runs has the same, unless it has own."""
        slug = slug.lower()
        return self.flows.get(slug) or self.flows.get(slug.removeprefix(PREFIX))

    @property
    def service_name(self) -> str:
        """The service of the spans, unless a variable of OpenTelemetry says it."""
        return self.telemetry.service_name or self.pgflowd.name

    @property
    def shortest_heartbeat_s(self) -> float:
        """The shortest heartbeat_interval of any flow."""
        workers = [self.worker, *(self.worker_for(slug) for slug in self.flows)]
        return min(worker.heartbeat_interval_s for worker in workers)

    def origin_of(self, *where: str) -> Origin:
        """Return the origin of a key, such as ("worker", "poll_min")."""
        return self.origins.get(where, Origin())


# the classes of the sections of a file, by their names
SECTIONS: Mapping[str, type] = MappingProxyType(
    {each.name: type(each.default) for each in fields(Settings) if is_dataclass(each.default)}
)
