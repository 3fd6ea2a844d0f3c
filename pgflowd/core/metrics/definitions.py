"""
Defines every metric of the daemon once: name, type, labels, help, and the source of its numbers.

`core.metrics.counters` counts by these definitions, and `core.metrics.exposition` renders them.
Labels have few values: flows, steps, processes and some fixed words. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial

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
    type: MetricType, source: MetricSource, labels: str, name: str, help: str, key: str = ""
) -> Metric:
    bounds_s = BOUNDS_S if type is MetricType.HISTOGRAM else ()
    return Metric(name, type, help, source, key or name, tuple(labels.split()), bounds_s)


_COUNTER, _GAUGE, _HISTOGRAM = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
_WORKER, _FLOW = MetricSource.WORKER, MetricSource.FLOW
_CHILDREN, _SUPERVISOR = MetricSource.CHILDREN, MetricSource.SUPERVISOR
_of_flow = partial(_metric, _GAUGE, _FLOW, "flow")
_of_daemon = partial(_metric, _GAUGE, _SUPERVISOR, "")
_of_worker = partial(_metric, _COUNTER, _WORKER)  # its labels come next
_of_children = partial(_metric, _COUNTER, _CHILDREN)

TASKS = _of_worker("flow step outcome", "tasks", "Attempts that ended, by outcome.")
TASK_SECONDS = _metric(_HISTOGRAM, _WORKER, "flow step", "task_seconds", "How long tasks ran.")
TASK_WAIT_SECONDS = _metric(
    _HISTOGRAM,
    _WORKER,
    "flow step",
    "task_wait_seconds",
    "How long tasks waited for their first attempt.",
)
RUNS = _of_worker("flow status", "runs", "Runs ended by reports from here, or cancelled meanwhile.")
WAKES = _of_worker("flow reason", "wakes", "Claims and checks of the queue, by cause.")
MISSED_NOTIFICATIONS = _of_worker(
    "flow",
    "missed_notifications",
    "Claims after a silence that brought tasks, of which no notification had told.",
)
RESTARTS = _metric(_COUNTER, _SUPERVISOR, "child reason", "restarts", "Restarts of children.")
SCHEDULE_TICKS = _of_children(
    "schedule result",
    "schedule_ticks",
    "Runs that schedules have started from here, or could not start.",
)
UNDO_RUNS = _of_children("flow result", "undo_runs", "Undos of runs that have ended, as seen here.")
LOG_RECORDS_DROPPED = _of_children(
    "", "log_records_dropped", "Records of the log that its reader was too slow for."
)
SPANS = _of_children("result", "spans", "Spans that the collector has, or that it refused.")
DATABASE_ERRORS = _of_children("kind", "database_errors", "Errors of the database.")
STATE = _metric(_GAUGE, _SUPERVISOR, "state", "state", "The state of the daemon: 1, others 0.")
READY = _of_daemon("ready", "Whether it is ready, as /readyz says.")

# all of them, in the order in which they are printed
METRICS = (
    TASKS,
    TASK_SECONDS,
    TASK_WAIT_SECONDS,
    RUNS,
    WAKES,
    MISSED_NOTIFICATIONS,
    _of_flow("running_tasks", "Tasks that run now.", "running"),
    _of_flow("max_concurrency", "Tasks that may run at once."),
    _of_flow("queued_tasks", "Tasks that wait in the queue.", "queued"),
    _of_flow("oldest_queued_seconds", "Age of the oldest ready task.", "oldest_queued_s"),
    _metric(
        _GAUGE,
        _FLOW,
        "flow kind",
        "waiting_tasks",
        "Tasks that wait for a time, a signal or something else.",
        "waits",
    ),
    _of_children("", "listener_reconnects", "Lost LISTEN connections.", "reconnects"),
    RESTARTS,
    _of_daemon("parked_workers", "Workers that wait for a person."),
    _of_daemon("asleep_workers", "Workers that sleep until there is work."),
    _of_children("", "stalled_tasks", "Tasks whose worker vanished.", "stalled"),
    _metric(
        _GAUGE,
        _SUPERVISOR,
        "flow",
        "quarantined_tasks",
        "Tasks that wait until somebody decides about them.",
        "quarantined",
    ),
    _of_daemon(
        "due_late_seconds", "Since when the first wait or run is due that was not processed."
    ),
    SCHEDULE_TICKS,
    UNDO_RUNS,
    LOG_RECORDS_DROPPED,
    SPANS,
    DATABASE_ERRORS,
    _metric(_COUNTER, _SUPERVISOR, "result", "reloads", "Reloads, by result."),
    STATE,
    READY,
    _of_daemon("database_up", "Whether the database answers, as far as is known."),
    _of_daemon("database_rtt_seconds", "Round trip to the database."),
    _of_daemon("clock_skew_seconds", "The clock of the database less ours."),
    _of_flow(
        "oldest_running_seconds", "How long the oldest running task has run.", "oldest_running_s"
    ),
    _of_flow("stuck_runners", "Runners that cannot be killed.", "stuck"),
    _metric(_COUNTER, _SUPERVISOR, "process", "process_cpu_seconds", "Processor time."),
    _metric(
        _GAUGE,
        _SUPERVISOR,
        "process",
        "process_resident_bytes",
        "Memory; what processes share counts for each.",
    ),
    _metric(MetricType.INFO, _SUPERVISOR, "version name", "build", "What runs here."),
)
