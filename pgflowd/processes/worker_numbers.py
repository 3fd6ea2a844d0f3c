"""
The worker's numbers: what it tells of itself with each Beat; see `core.numbers`.

Counters only grow; what is said of the last minute is computed from the last tasks, of which
a few thousand are kept.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from pgflowd.core import happenings as on
from pgflowd.core.mind import Mind, Phase
from pgflowd.core.numbers import observe
from pgflowd.db.workers import Standing
from pgflowd.errors import Problem

MINUTE_S = 60.0
MOST_KEPT = 5000
MOST_BUSY = 50


class Numbers:
    """Counts what the loop sees."""

    def __init__(self) -> None:
        self.problems: tuple[Problem, ...] = ()
        self._tasks: dict[str, Counter[str]] = {}
        self._seconds: dict[str, list[float]] = {}
        self._waited: dict[str, list[float]] = {}
        self._last: deque[tuple[float, bool, float | None]] = deque(maxlen=MOST_KEPT)
        self._wakes: Counter[str] = Counter()
        self._last_wakes: deque[tuple[float, str]] = deque(maxlen=MOST_KEPT)
        self._errors: Counter[str] = Counter()
        self._runs: Counter[str] = Counter()

    def woken(self, reason: str) -> None:
        self._wakes[reason] += 1
        self._last_wakes.append((time.monotonic(), reason))

    def ended(self, status: str, count: int) -> None:
        """So many runs have ended."""
        self._runs[status] += count

    def saw(self, events: Iterable[Any], mind: Mind) -> None:
        """Look at events before they are decided upon."""
        now = time.monotonic()
        for event in events:
            if type(event) is on.Done:
                runner = mind.runners.get(event.id)
                if runner is not None and runner.task is not None:
                    succeeded = event.report.outcome == "completed"
                    took_s = now - runner.sent_at
                    self._last.append((now, succeeded, took_s))
                    observe(self._seconds.setdefault(runner.task.step, []), took_s)
            elif type(event) is on.Turned:
                self._turned(event, mind, now)
            elif type(event) is on.Broken:
                self._errors[event.meaning] += 1

    def _turned(self, event: on.Turned, mind: Mind, now: float) -> None:
        if mind.sending and event.tasks:
            self.woken("completion")
        for task in event.tasks:
            if task.waited_s is not None:
                observe(self._waited.setdefault(task.step, []), task.waited_s)
        told = Counter(
            (report.task.step, report.outcome)
            for report, answer in zip(mind.sending, event.answers, strict=True)
            if answer.verdict != "error"  # else it is sent again
        )
        for (step, outcome), count in told.items():
            self._tasks.setdefault(step, Counter())[outcome] += count
            if outcome in ("timed_out", "crashed"):
                self._last.extend([(now, False, None)] * count)

    def now(self, mind: Mind, standing: Standing, zygote: int) -> dict[str, Any]:
        """The numbers of this moment."""
        since = time.monotonic() - MINUTE_S
        recent = [each for each in self._last if each[0] >= since]
        took = sorted(seconds for _, _, seconds in recent if seconds is not None)
        wakes = Counter(reason for at, reason in self._last_wakes if at >= since)
        return {
            "running": mind.running,
            "runners": len(mind.runners),
            "queued": standing.queued,
            "oldest_queued_s": standing.oldest_queued_s,
            "zygote": zygote,
            "completed_1m": sum(succeeded for _, succeeded, _ in recent),
            "failed_1m": sum(not succeeded for _, succeeded, _ in recent),
            "p50_s": _share(took, 0.5),
            "p95_s": _share(took, 0.95),
            "wakes_1m": dict(wakes),
            "wakes": dict(self._wakes),
            "busy": _busy(mind),
            "problems": [{"code": each.code, "text": each.text} for each in self.problems],
            "stuck": sum(r.phase is Phase.STUCK for r in mind.runners.values()),
            "tasks": {step: dict(counts) for step, counts in self._tasks.items()},
            "task_seconds": self._seconds,
            "task_wait_seconds": self._waited,
            "runs": dict(self._runs),
            "database_errors": dict(self._errors),
        }


def _busy(mind: Mind) -> list[dict[str, Any]]:
    """Some of the running tasks."""
    now = time.monotonic()
    tasks = [(each.task, each.sent_at) for each in mind.runners.values() if each.task is not None]
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
