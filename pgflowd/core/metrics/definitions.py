"""
Defines every metric of the daemon once: name, type, labels, help, and the source of its numbers;
counts what happens in a child, and combines the numbers that children send. Labels have few values:
flows, steps, processes and some fixed words. `core.metrics.exposition` renders them. Pure.

A child sends its numbers with each heartbeat, for `status` and for the metrics. They are a plain
object. A key replaces the one before; the entries of a counter replace each other one by one. So
a child may send some keys now and others later, and `portions` splits numbers that are too large
for one message. Counters only grow while the process lives; the supervisor adds the counts of the
child's earlier processes. `METRICS` lists them. The other numbers of a worker are

    running, runners, queued, oldest_queued_s         at this moment; queued is from the database
    oldest_queued_run                                 the run of the task that waits longest
    queue_age_s                                       since these were read from the database
    oldest_running_s                                  how long the oldest task has run
    claimed_s                                         since a claim has brought a task, or null
    zygote                                            its pid
    completed_1m, failed_1m, p50_s, p95_s             over the last minute
    wakes_1m       {reason: n}                        notification, completion, look, due, fallback
    database       {state, server, place, pgmq, schema, rtt_s, clock_skew_s, at}
    problems       [{code, text, next}]               that `status` shows
    line_failures  n                                  calls in a row that failed or left a report
    line_failing_s                                    since the first of them began, or null
    line_call_s                                       since the call under way began, or null
    line_error     {code, text, run, task}            the last of them; code: the SQLSTATE, or null
    stuck          n                                  runners that cannot be killed
    busy           [{task, run, attempt, took_s}]     some of the running tasks, for a dump

of the listener: last_notification_at, wakes_1m; of the sweeper: last_sweep_at, interval_s,
parts {part: {at, code, text, next}}, of the last success by the monotonic clock, and of a failure
since; recovered_24h, given_up_24h, due_late_s, waiting {flow: {kind: n}}, and unserved
{flow: {queued, oldest_queued_s}}. Moments (`…_at`) are seconds since 1970. A histogram is a list:
the number of observations in each bucket (not cumulated), of those above, and their sum.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from pgflowd.core.statuses import Outcome, RunStatus

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


def _metric(
    type: MetricType, source: MetricSource, labels: str, name: str, help: str, key: str = ""
) -> Metric:
    return Metric(name, type, help, source, key or name, tuple(labels.split()))


_COUNTER, _GAUGE, _HISTOGRAM = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
_WORKER, _FLOW = MetricSource.WORKER, MetricSource.FLOW
_CHILDREN, _SUPERVISOR = MetricSource.CHILDREN, MetricSource.SUPERVISOR
_of_flow = partial(_metric, _GAUGE, _FLOW, "flow")
_gauge = partial(_metric, _GAUGE, _SUPERVISOR)  # its labels come next
_of_daemon = partial(_gauge, "")
_histogram = partial(_metric, _HISTOGRAM, _WORKER, "flow step")
_of_worker = partial(_metric, _COUNTER, _WORKER)
_of_children = partial(_metric, _COUNTER, _CHILDREN)

TASKS = _of_worker("flow step outcome", "tasks", "Attempts that ended, by outcome.")
TASK_SECONDS = _histogram("task_seconds", "How long tasks ran.")
TASK_WAIT_SECONDS = _histogram(
    "task_wait_seconds", "How long tasks waited for their first attempt."
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
STATE = _gauge("state", "state", "The state of the daemon: 1, others 0.")
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
    _gauge(
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
    _gauge("process", "process_resident_bytes", "Memory; what processes share counts for each."),
    _metric(MetricType.INFO, _SUPERVISOR, "version name", "build", "What runs here."),
)


MINUTE_S = 60.0
MAX_PORTION_BYTES = 32 * 1024  # a message holds twice as much
COUNTERS = tuple(metric.key for metric in METRICS if metric.source in (_WORKER, _CHILDREN))


class Counters:
    """Counters and histograms of this process, nested as in `Metric`; a flow is not among them."""

    def __init__(self, *metrics: Metric) -> None:
        self.numbers: dict[str, Any] = {
            metric.key: {} if set(metric.labels) - {"flow"} else 0 for metric in metrics
        }

    def count(self, metric: Metric, *labels: str, by: float = 1) -> None:
        numbers, (*outer, last) = self.numbers, (metric.key, *labels)
        for name in outer:
            numbers = numbers.setdefault(name, {})
        numbers[last] = numbers.get(last, 0) + by


class LastMinute:
    """Counts of the last minute, by name and second, so that memory stays small."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, Counter[str]]] = deque(maxlen=int(MINUTE_S) + 1)

    def add(self, name: str, now: float, count: int = 1) -> None:
        if not self._seconds or self._seconds[-1][0] != int(now):
            self._seconds.append((int(now), Counter()))
        self._seconds[-1][1][name] += count

    def counts(self, now: float) -> Counter[str]:
        first = now - MINUTE_S
        return sum((counter for second, counter in self._seconds if second >= first), Counter())


def observe(histogram: list[float], seconds: float) -> None:
    """Count an observation; start with an empty list."""
    if not histogram:
        histogram.extend([0] * (len(BOUNDS_S) + 1) + [0.0])
    histogram[bisect_left(BOUNDS_S, seconds)] += 1
    histogram[-1] += seconds


def added(one: Any, other: Any) -> Any:
    """Return the sum of two counters; if their forms differ, one of them is ignored."""
    if is_number(one) and is_number(other):
        return one + other
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            key: added(one[key], other[key]) if key in one and key in other else rest
            for key, rest in {**one, **other}.items()
        }
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [added(left, right) for left, right in zip(one, other, strict=True)]
    return one if is_number(one) or isinstance(one, Mapping | list) else other


def counters_of(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counters among the numbers."""
    return {key: numbers[key] for key in COUNTERS if key in numbers}


def merged(known: Mapping[str, Any], received: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers after one more heartbeat."""
    both = {**known, **received}
    for key in COUNTERS:
        old, new = known.get(key), received.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            both[key] = {**old, **new}
    return both


def portions(numbers: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Split numbers into parts that each fit into a heartbeat; a flow may have very many steps."""
    large = {key for key in COUNTERS if isinstance(numbers.get(key), Mapping)}
    yield {key: value for key, value in numbers.items() if key not in large}
    part: dict[str, Any] = {}
    size = 0
    for key in sorted(large):
        for name, value in numbers[key].items():
            length = len(json.dumps({name: value}))
            if size + length > MAX_PORTION_BYTES and part:
                yield part
                part, size = {}, 0
            part.setdefault(key, {})[name] = value
            size += length
    if part:
        yield part


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# What a worker adds to the statistics of its flow about once a minute: the growth of counters that
# the metrics have anyway, so no task pays for it.
MINUTE = (TASKS, RUNS, TASK_SECONDS, TASK_WAIT_SECONDS)  # whose counters are needed
OF_RUNS = ""  # in place of a step
_ENDS = tuple(map(str, (Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CRASHED)))
_RUN_ENDS = (str(RunStatus.COMPLETED), str(RunStatus.FAILED))


def minute_of(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How much these counters have grown, by step; nothing where nothing has."""
    steps = {*now[TASKS.key], *now[TASK_SECONDS.key], *now[TASK_WAIT_SECONDS.key]}
    found = []
    for step in sorted(steps):
        tasks = before.get(TASKS.key, {}).get(step, {})
        grown = _grown(now[TASKS.key].get(step, {}), tasks, _ENDS)
        for name, metric in (("ran", TASK_SECONDS), ("waited", TASK_WAIT_SECONDS)):
            more = _more(now[metric.key].get(step), before.get(metric.key, {}).get(step))
            grown |= {name: more} if any(more) else {}
        found.append({"step": step, **grown})
    runs = _grown(now[RUNS.key], before.get(RUNS.key, {}), _RUN_ENDS)
    found.append({"step": OF_RUNS, **runs})
    return [each for each in found if len(each) > 1]


def _grown(
    now: Mapping[str, int], before: Mapping[str, int], names: tuple[str, ...]
) -> dict[str, Any]:
    grown = {name: now.get(name, 0) - before.get(name, 0) for name in names}
    return {name: count for name, count in grown.items() if count}


def _more(now: list[float] | None, before: list[float] | None) -> list[int]:
    """The growth of a histogram, without the sum in its last place."""
    if not now:
        return []
    return [int(a - b) for a, b in zip(now[:-1], (before or [0] * len(now))[:-1], strict=True)]
