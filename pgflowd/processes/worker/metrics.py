"""
The worker's numbers, which each heartbeat takes along; see `core.metrics.definitions`.

The engine decides what is counted. Of the last minute, counts are kept by the second, and times
of the last few thousand tasks. How many tasks wait is known from renewals of leases, and from the
sweeper; a claim that got less than it asked for has seen that none do, so that the numbers do not
lag behind.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from itertools import islice
from typing import Any

from pgflowd.core.metrics import definitions
from pgflowd.core.metrics.definitions import (
    MINUTE,
    MINUTE_S,
    TASKS,
    WAKES,
    Counters,
    LastMinute,
    minute_of,
    observe,
)
from pgflowd.core.statuses import Outcome
from pgflowd.core.text import cut
from pgflowd.core.worker import runner_ends
from pgflowd.core.worker.actions import Count, Observe
from pgflowd.core.worker.state import (
    GOOD_STANDING,
    AssignedTask,
    ConnectionState,
    RunnerPhase,
    TaskPhase,
    WorkerState,
)
from pgflowd.errors import Problem

MAX_KEPT = 5000
MAX_BUSY = 50
MAX_PROBLEMS = 20  # the log has them all; a heartbeat that is too large cannot be sent
MAX_CHARS = 300  # of the text of one


class WorkerMetrics:
    """Keeps what the engine counts."""

    def __init__(self, import_s: float | None = None) -> None:
        self.problems: tuple[Problem, ...] = ()
        self._import_s = import_s  # how long it took to import the flow
        self._counters = Counters(
            *MINUTE, WAKES, definitions.MISSED_NOTIFICATIONS, definitions.DATABASE_ERRORS
        )
        self._added: dict[str, Any] = {}  # the counters that the statistics have
        self._took: deque[tuple[float, float]] = deque(maxlen=MAX_KEPT)  # when, seconds
        self._tasks_1m, self._wakes_1m = LastMinute(), LastMinute()

    def count(self, action: Count) -> None:
        self._counters.count(action.metric, *action.labels, by=action.count)
        if action.metric is WAKES:
            self._wakes_1m.add(action.labels[0], time.monotonic(), action.count)
        elif action.metric is TASKS and action.labels[-1] in (Outcome.TIMED_OUT, Outcome.CRASHED):
            self._tasks_1m.add("failed", time.monotonic(), action.count)

    def observe(self, action: Observe) -> None:
        (label,), metric = action.labels, action.metric
        histogram = self._counters.numbers[metric.key].setdefault(label, [])
        for seconds in action.seconds:
            observe(histogram, seconds)
        if action.outcome is not None:
            now = time.monotonic()
            name = "completed" if action.outcome is Outcome.COMPLETED else "failed"
            self._tasks_1m.add(name, now)
            self._took.append((now, action.seconds[0]))

    def minute(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """What was done since the statistics had it, by step, and the counters as they are."""
        counters = deepcopy({metric.key: self._counters.numbers[metric.key] for metric in MINUTE})
        return minute_of(counters, self._added), counters

    def added(self, counters: dict[str, Any]) -> None:
        """The statistics have these counters."""
        self._added = counters

    def now(
        self, state: WorkerState, zygote: int, claimed_at: float | None = None
    ) -> dict[str, Any]:
        """The numbers of this moment; `claimed_at`: when a claim last brought a task."""
        now, runners = time.monotonic(), state.runners
        took = sorted(seconds for at, seconds in self._took if at >= now - MINUTE_S)
        last = self._tasks_1m.counts(now)
        running_s = [now - each.sent_at for each in _running(state)]
        waiting = GOOD_STANDING if state.schedule.has_drained else state.connections.standing
        return {
            "running": runners.count_running(),
            "runners": len(runners.by_id),
            "queued": waiting.queued,
            "oldest_queued_s": waiting.oldest_queued_s,
            "oldest_queued_run": waiting.oldest_run,
            "queue_age_s": _queue_age_s(state, now),
            "oldest_running_s": round(max(running_s, default=0.0), 3),
            "claimed_s": None if claimed_at is None else round(now - claimed_at, 3),
            "zygote": zygote,
            "import_s": self._import_s,
            "completed_1m": last["completed"],
            "failed_1m": last["failed"],
            "p50_s": _share(took, 0.5),
            "p95_s": _share(took, 0.95),
            "wakes_1m": dict(self._wakes_1m.counts(now)),
            "busy": [
                {
                    "task": f"{each.task.step}#{each.task.task_index}",
                    "run": each.task.run_id,
                    "attempt": each.task.attempt,
                    "took_s": round(now - each.sent_at, 3),
                }
                for each in islice(_running(state), MAX_BUSY)
            ],
            "problems": [
                {"code": each.code, "text": cut(each.text, MAX_CHARS), "next": each.next}
                for each in (*_troubles(state), *self.problems[:MAX_PROBLEMS])
            ],
            **_line(state, now),
            "stuck": sum(each.phase is RunnerPhase.STUCK for each in runners.by_id.values()),
            **self._counters.numbers,
        }


def _troubles(state: WorkerState) -> tuple[Problem, ...]:
    """Why no runner can begin, if that is so."""
    text = state.runners.trouble
    return (Problem(runner_ends.CODE, text, next=runner_ends.NEXT),) if text else ()


def _line(state: WorkerState, now: float) -> dict[str, Any]:
    """How the worker's line to the database does: its failures in a row, and the call under way."""
    turns, main = state.turns, state.connections.main
    error = turns.error
    return {
        "line_failures": turns.failures,
        "line_failing_s": round(now - turns.failing_since, 1) if turns.failures else None,
        "line_call_s": round(now - main.since, 1) if main.state is ConnectionState.BUSY else None,
        "line_error": error
        and {
            "code": error.sqlstate,
            "text": cut(error.text.partition("\\n")[0], MAX_CHARS),  # the log has the context
            "run": error.run_id,
            "task": error.task,
        },
    }


def _queue_age_s(state: WorkerState, now: float) -> float | None:
    """How long ago the worker has seen its queue; a claim that drained it has seen it since."""
    if state.schedule.has_drained:
        return 0.0
    seen_at = state.connections.queue_seen_at
    return None if seen_at < 0 else round(now - seen_at, 3)


def _running(state: WorkerState) -> Iterator[AssignedTask]:
    for runner in state.runners.by_id.values():
        yield from (each for each in runner.tasks.values() if each.phase is not TaskPhase.WAITING)


def _share(values: list[float], share: float) -> float | None:
    """The value below which this share of them lies."""
    if not values:
        return None
    return round(values[min(len(values) - 1, int(share * len(values)))], 6)
