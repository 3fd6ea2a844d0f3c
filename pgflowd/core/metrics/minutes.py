"""
What a worker adds to the statistics of its flow: the growth of its counters, about once a minute.

The counters are those that the metrics have anyway, so no task pays for the statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgflowd.core.metrics.definitions import RUNS, TASK_SECONDS, TASK_WAIT_SECONDS, TASKS
from pgflowd.core.statuses import Outcome, RunStatus

MINUTE = (TASKS, RUNS, TASK_SECONDS, TASK_WAIT_SECONDS)  # whose counters are needed
OF_RUNS = ""  # in place of a step
_ENDS = (Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CRASHED)
_RUN_ENDS = (RunStatus.COMPLETED, RunStatus.FAILED)


def minute_of(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How much these counters have grown, by step; nothing where nothing has."""
    steps = {*now[TASKS.key], *now[TASK_SECONDS.key], *now[TASK_WAIT_SECONDS.key]}
    found = [_of_step(step, now, before) for step in sorted(steps)]
    runs = _grown(now[RUNS.key], before.get(RUNS.key, {}), tuple(map(str, _RUN_ENDS)))
    found.append({"step": OF_RUNS, **runs})
    return [each for each in found if len(each) > 1]


def _of_step(step: str, now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    tasks = before.get(TASKS.key, {}).get(step, {})
    grown = _grown(now[TASKS.key].get(step, {}), tasks, tuple(map(str, _ENDS)))
    for name, metric in (("ran", TASK_SECONDS), ("waited", TASK_WAIT_SECONDS)):
        more = _more(now[metric.key].get(step), before.get(metric.key, {}).get(step))
        grown |= {name: more} if any(more) else {}
    return {"step": step, **grown}


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
