"""
Defines every metric of the daemon once: name, type, labels, help, and the source of its numbers.

`core.metrics.counters` counts by these definitions, and `core.metrics.exposition` renders them.
Labels have few values: flows, steps, processes and some fixed words. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# of task times, in seconds: from a trivial handler to the longest that is usual
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class MetricType(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class MetricSource(Enum):
    """The place of a metric's numbers; there its key leads to them."""

    WORKER = "the numbers of each worker; the first label is its flow"
    FLOW = "the fields of each flow in the status document; the first label is the flow"
    CHILDREN = "the numbers of all children, added up"
    SUPERVISOR = "the supervisor's own counts, and facts of the daemon"


@dataclass(frozen=True)
class Metric:
    """One metric. Its numbers are nested by its labels: {step: {outcome: number}}."""

    name: str  # without the prefix pgflowd_
    type: MetricType
    help: str
    source: MetricSource
    key: str
    labels: tuple[str, ...] = ()
    bounds_s: tuple[float, ...] = ()  # of a histogram's buckets


def _metric(
    name: str, type: MetricType, source: MetricSource, labels: str, help: str, key: str = ""
) -> Metric:
    bounds_s = BOUNDS_S if type is MetricType.HISTOGRAM else ()
    return Metric(name, type, help, source, key or name, tuple(labels.split()), bounds_s)


_COUNTER, _GAUGE, _HISTOGRAM = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
_WORKER, _FLOW = MetricSource.WORKER, MetricSource.FLOW
_CHILDREN, _SUPERVISOR = MetricSource.CHILDREN, MetricSource.SUPERVISOR

TASKS = _metric("tasks", _COUNTER, _WORKER, "flow step outcome", "Attempts that ended, by outcome.")
TASK_SECONDS = _metric("task_seconds", _HISTOGRAM, _WORKER, "flow step", "How long tasks ran.")
TASK_WAIT_SECONDS = _metric(
    "task_wait_seconds",
    _HISTOGRAM,
    _WORKER,
    "flow step",
    "How long tasks waited for their first attempt.",
)
RUNS = _metric(
    "runs",
    _COUNTER,
    _WORKER,
    "flow status",
    "Runs ended by reports from here, or cancelled meanwhile.",
)
WAKES = _metric(
    "wakes", _COUNTER, _WORKER, "flow reason", "Claims and checks of the queue, by cause."
)
MISSED_NOTIFICATIONS = _metric(
    "missed_notifications",
    _COUNTER,
    _WORKER,
    "flow",
    "Claims after a silence that brought tasks, of which no notification had told.",
)
RUNNING_TASKS = _metric("running_tasks", _GAUGE, _FLOW, "flow", "Tasks that run now.", "running")
MAX_CONCURRENCY = _metric("max_concurrency", _GAUGE, _FLOW, "flow", "Tasks that may run at once.")
QUEUED_TASKS = _metric(
    "queued_tasks", _GAUGE, _FLOW, "flow", "Tasks that wait in the queue.", "queued"
)
OLDEST_QUEUED_SECONDS = _metric(
    "oldest_queued_seconds",
    _GAUGE,
    _FLOW,
    "flow",
    "Age of the oldest ready task.",
    "oldest_queued_s",
)
WAITING_TASKS = _metric(
    "waiting_tasks",
    _GAUGE,
    _FLOW,
    "flow kind",
    "Tasks that wait for a time, a signal or something else.",
    "waits",
)
LISTENER_RECONNECTS = _metric(
    "listener_reconnects", _COUNTER, _CHILDREN, "", "Lost LISTEN connections.", "reconnects"
)
RESTARTS = _metric("restarts", _COUNTER, _SUPERVISOR, "child reason", "Restarts of children.")
PARKED_WORKERS = _metric(
    "parked_workers", _GAUGE, _SUPERVISOR, "", "Workers that wait for a person."
)
ASLEEP_WORKERS = _metric(
    "asleep_workers", _GAUGE, _SUPERVISOR, "", "Workers that sleep until there is work."
)
STALLED_TASKS = _metric(
    "stalled_tasks", _COUNTER, _CHILDREN, "", "Tasks whose worker vanished.", "stalled"
)
QUARANTINED_TASKS = _metric(
    "quarantined_tasks",
    _GAUGE,
    _SUPERVISOR,
    "flow",
    "Tasks that wait until somebody decides about them.",
    "quarantined",
)
DUE_LATE_SECONDS = _metric(
    "due_late_seconds",
    _GAUGE,
    _SUPERVISOR,
    "",
    "Since when the first wait or run is due that was not processed.",
)
SCHEDULE_TICKS = _metric(
    "schedule_ticks",
    _COUNTER,
    _CHILDREN,
    "schedule result",
    "Runs that schedules have started from here, or could not start.",
)
UNDO_RUNS = _metric(
    "undo_runs", _COUNTER, _CHILDREN, "flow result", "Undos of runs that have ended, as seen here."
)
LOG_RECORDS_DROPPED = _metric(
    "log_records_dropped",
    _COUNTER,
    _CHILDREN,
    "",
    "Records of the log that its reader was too slow for.",
)
SPANS = _metric(
    "spans",
    _COUNTER,
    _CHILDREN,
    "result",
    "Spans that the collector has, that were dropped before, or that it refused.",
)
DATABASE_ERRORS = _metric("database_errors", _COUNTER, _CHILDREN, "kind", "Errors of the database.")
RELOADS = _metric("reloads", _COUNTER, _SUPERVISOR, "result", "Reloads, by result.")
STATE = _metric("state", _GAUGE, _SUPERVISOR, "state", "The state of the daemon: 1, others 0.")
READY = _metric("ready", _GAUGE, _SUPERVISOR, "", "Whether it is ready, as /readyz says.")
DATABASE_UP = _metric(
    "database_up", _GAUGE, _SUPERVISOR, "", "Whether the database answers, as far as is known."
)
DATABASE_RTT_SECONDS = _metric(
    "database_rtt_seconds", _GAUGE, _SUPERVISOR, "", "Round trip to the database."
)
CLOCK_SKEW_SECONDS = _metric(
    "clock_skew_seconds", _GAUGE, _SUPERVISOR, "", "The clock of the database less ours."
)
OLDEST_RUNNING_SECONDS = _metric(
    "oldest_running_seconds",
    _GAUGE,
    _FLOW,
    "flow",
    "How long the oldest running task has run.",
    "oldest_running_s",
)
STUCK_RUNNERS = _metric(
    "stuck_runners", _GAUGE, _FLOW, "flow", "Runners that cannot be killed.", "stuck"
)
PROCESS_CPU_SECONDS = _metric(
    "process_cpu_seconds", _COUNTER, _SUPERVISOR, "process", "Processor time."
)
PROCESS_RESIDENT_BYTES = _metric(
    "process_resident_bytes",
    _GAUGE,
    _SUPERVISOR,
    "process",
    "Memory; what processes share counts for each.",
)
BUILD = _metric("build", MetricType.INFO, _SUPERVISOR, "version name", "What runs here.")

# all of the above, in the order in which they are printed
METRICS = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
