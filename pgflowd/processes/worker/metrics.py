"""
The worker's numbers: what it tells of itself with each Beat; see `core.metrics.counters`.

Counters only grow. What is said of the last minute is counted by the second; how long tasks took
in it is judged by the last few thousand. How many wait is known from beats; a claim that got less
than it wanted has seen that there are none, and so the numbers do not lag behind an empty queue.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from pgflowd.core.metrics.counters import MINUTE_S, LastMinute, observe
from pgflowd.core.text import cut
from pgflowd.core.worker import events
from pgflowd.core.worker.state import RunnerPhase, WorkerState
from pgflowd.db.workers import Standing
from pgflowd.errors import Problem

MOST_KEPT = 5000
MOST_BUSY = 50
MOST_PROBLEMS = 20  # the log has them all; a beat that is too large would be no beat
MOST_CHARS = 300  # of the text of one
_IN_TIME = (RunnerPhase.BUSY, RunnerPhase.PEEKED)  # an outcome that comes later counts for nothing


class WorkerMetrics:
    """Counts what the loop sees."""

    def __init__(self) -> None:
        self.problems: tuple[Problem, ...] = ()
        self._tasks: dict[str, Counter[str]] = {}
        self._seconds: dict[str, list[float]] = {}
        self._waited: dict[str, list[float]] = {}
        self._took: deque[tuple[float, float]] = deque(maxlen=MOST_KEPT)  # when, seconds
        self._tasks_1m, self._wakes_1m = LastMinute(), LastMinute()
        self._wakes: Counter[str] = Counter()
        self._is_drained = False  # since the last beat, a claim found less than it wanted
        self._errors: Counter[str] = Counter()
        self._runs: Counter[str] = Counter()

    def woken(self, reason: str) -> None:
        self._wakes[reason] += 1
        self._wakes_1m.add(reason, time.monotonic())

    def ended(self, status: str, count: int) -> None:
        """So many runs have ended."""
        self._runs[status] += count

    def saw(self, seen: Iterable[Any], state: WorkerState) -> None:
        """Look at events before they are decided upon."""
        now = time.monotonic()
        completed = failed = 0
        for event in seen:
            if type(event) is events.Done:
                runner = state.runners.get(event.id)
                if runner is not None and runner.task is not None and runner.phase in _IN_TIME:
                    succeeded = event.report.outcome == "completed"
                    completed, failed = completed + succeeded, failed + (not succeeded)
                    took_s = now - runner.sent_at
                    self._took.append((now, took_s))
                    observe(self._seconds.setdefault(runner.task.step, []), took_s)
            elif type(event) is events.ReportAndClaimDone:
                self._turned(event, state, now)
            elif type(event) is events.LeasesRenewed:
                self._is_drained = False
            elif type(event) is events.ConnectionLost:
                self._errors[event.meaning] += 1
        if completed or failed:
            self._tasks_1m.add("completed", now, completed)
            self._tasks_1m.add("failed", now, failed)

    def _turned(self, event: events.ReportAndClaimDone, state: WorkerState, now: float) -> None:
        if state.sending and event.tasks:
            self.woken("completion")
        if state.wanted:
            self._is_drained = len(event.tasks) < state.wanted
        for task in event.tasks:
            if task.waited_s is not None:
                observe(self._waited.setdefault(task.step, []), task.waited_s)
        told = Counter(
            (report.task.step, report.outcome)
            for report, answer in zip(state.sending, event.answers, strict=True)
            if answer.verdict != "error"  # else it is sent again
        )
        for (step, outcome), count in told.items():
            self._tasks.setdefault(step, Counter())[outcome] += count
            if outcome in ("timed_out", "crashed"):
                self._tasks_1m.add("failed", now, count)

    def now(self, state: WorkerState, standing: Standing, zygote: int) -> dict[str, Any]:
        """The numbers of this moment."""
        now = time.monotonic()
        took = sorted(seconds for at, seconds in self._took if at >= now - MINUTE_S)
        last = self._tasks_1m.counts(now)
        waits = Standing(standing.state) if self._is_drained else standing
        return {
            "running": state.running,
            "runners": len(state.runners),
            "queued": waits.queued,
            "oldest_queued_s": waits.oldest_queued_s,
            "zygote": zygote,
            "completed_1m": last["completed"],
            "failed_1m": last["failed"],
            "p50_s": _share(took, 0.5),
            "p95_s": _share(took, 0.95),
            "wakes_1m": dict(self._wakes_1m.counts(now)),
            "wakes": dict(self._wakes),
            "busy": _busy(state),
            "problems": [
                {"code": each.code, "text": cut(each.text, MOST_CHARS), "next": each.next}
                for each in self.problems[:MOST_PROBLEMS]
            ],
            "stuck": sum(r.phase is RunnerPhase.STUCK for r in state.runners.values()),
            "tasks": {step: dict(counts) for step, counts in self._tasks.items()},
            "task_seconds": self._seconds,
            "task_wait_seconds": self._waited,
            "runs": dict(self._runs),
            "database_errors": dict(self._errors),
        }


def _busy(state: WorkerState) -> list[dict[str, Any]]:
    """Some of the running tasks."""
    now = time.monotonic()
    tasks = [(each.task, each.sent_at) for each in state.runners.values() if each.task is not None]
    return [
        {
            "task": f"{task.step}#{task.task_index}",
            "run": task.run_id,
            "attempt": task.attempt,
            "took_s": round(now - sent_at, 3),
        }
        for task, sent_at in tasks[:MOST_BUSY]
    ]


def _share(values: list[float], share: float) -> float | None:
    """The value below which this share of them lies."""
    if not values:
        return None
    return round(values[min(len(values) - 1, int(share * len(values)))], 6)
