"""
Defines every metric of the daemon once: name, type, labels, help, and the source of its numbers.

`core.metrics.counters` counts by these definitions, and `core.metrics.openmetrics` renders them.
Labels have few values: flows, steps, children and some fixed words. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

# of task times, in seconds: from a trivial handler to the longest that is usual
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class MetricType(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class MetricSource(Enum):
    """The place of a metric's numbers, in which they stand under its key."""

    WORKER = "the numbers of each worker; the first label is its flow"
    FLOW = "the fields of each flow in the status document; the only label is the flow"
    CHILDREN = "the numbers of all children, added up"
    SUPERVISOR = "the supervisor's own counts and facts"


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


def _metric(name: str, type: MetricType, source: MetricSource, help: str, **more: Any) -> Metric:
    return Metric(name, type, help, source, **{"key": name, **more})


_COUNTER, _GAUGE, _HISTOGRAM = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
_WORKER, _FLOW = MetricSource.WORKER, MetricSource.FLOW
_CHILDREN, _SUPERVISOR = MetricSource.CHILDREN, MetricSource.SUPERVISOR
_STEP = ("flow", "step")

TASKS = _metric(
    "tasks", _COUNTER, _WORKER, "Attempts that ended, by outcome.", labels=(*_STEP, "outcome")
)
TASK_SECONDS = _metric(
    "task_seconds", _HISTOGRAM, _WORKER, "How long tasks ran.", labels=_STEP, bounds_s=BOUNDS_S
)
TASK_WAIT_SECONDS = _metric(
    "task_wait_seconds",
    _HISTOGRAM,
    _WORKER,
    "How long tasks waited for their first attempt.",
    labels=_STEP,
    bounds_s=BOUNDS_S,
)
RUNS = _metric(
    "runs",
    _COUNTER,
    _WORKER,
    "Runs ended by reports from here, or cancelled meanwhile.",
    labels=("flow", "status"),
)
WAKES = _metric(
    "wakes", _COUNTER, _WORKER, "Looks for work, by what caused them.", labels=("flow", "reason")
)
RUNNING_TASKS = _metric(
    "running_tasks", _GAUGE, _FLOW, "Tasks that run now.", key="running", labels=("flow",)
)
MAX_CONCURRENCY = _metric(
    "max_concurrency", _GAUGE, _FLOW, "Tasks that may run at once.", labels=("flow",)
)
QUEUED_TASKS = _metric(
    "queued_tasks", _GAUGE, _FLOW, "Tasks that wait in the queue.", key="queued", labels=("flow",)
)
OLDEST_QUEUED_SECONDS = _metric(
    "oldest_queued_seconds",
    _GAUGE,
    _FLOW,
    "Age of the oldest ready task.",
    key="oldest_queued_s",
    labels=("flow",),
)
LISTENER_RECONNECTS = _metric(
    "listener_reconnects", _COUNTER, _CHILDREN, "Lost LISTEN connections.", key="reconnects"
)
RESTARTS = _metric(
    "restarts", _COUNTER, _SUPERVISOR, "Restarts of children.", labels=("child", "reason")
)
PARKED_WORKERS = _metric("parked_workers", _GAUGE, _SUPERVISOR, "Workers that wait for a person.")
STALLED_TASKS = _metric(
    "stalled_tasks", _COUNTER, _CHILDREN, "Tasks whose worker vanished.", key="stalled"
)
DATABASE_ERRORS = _metric(
    "database_errors", _COUNTER, _CHILDREN, "Errors of the database.", labels=("kind",)
)
RELOADS = _metric("reloads", _COUNTER, _SUPERVISOR, "Reloads, by result.", labels=("result",))
BUILD = _metric(
    "build", MetricType.INFO, _SUPERVISOR, "What runs here.", labels=("version", "name")
)

METRICS = (  # in the order in which they are printed
    *(TASKS, TASK_SECONDS, TASK_WAIT_SECONDS, RUNS, WAKES),
    *(RUNNING_TASKS, MAX_CONCURRENCY, QUEUED_TASKS, OLDEST_QUEUED_SECONDS),
    *(LISTENER_RECONNECTS, RESTARTS, PARKED_WORKERS, STALLED_TASKS, DATABASE_ERRORS),
    *(RELOADS, BUILD),
)
