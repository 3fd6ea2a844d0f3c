"""
Judges by a worker's numbers whether its flow stands still, which makes a daemon degraded.

A flow with a backlog whose runners are all busy, or whose claims bring tasks, is only busy. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pgflowd.core.metrics.counters import is_number
from pgflowd.core.text import counted, duration, short_id
from pgflowd.errors import Problem

FAILING_S = 5.0  # by then a turn that failed by chance has been repeated with success
SLOW_S = 10.0  # of one call; those that wait for a lock end after 5 s
LOOK = "see worker.error in the daemon's log, and `pgflowd doctor`"


def problems_of_worker(
    numbers: Mapping[str, Any],
    *,
    age_s: float,
    up_s: float,
    late_s: float | None,
    max_concurrency: int | None,
) -> Iterator[Problem]:
    """Yield what is wrong with a worker that is up; its numbers are `age_s` old."""
    failing_s, call_s = _number(numbers, "line_failing_s"), _number(numbers, "line_call_s")
    if failing_s is not None and failing_s + age_s >= FAILING_S:
        yield _failing(numbers, failing_s + age_s)
    elif call_s is not None and call_s >= SLOW_S:  # it may have ended since the numbers were sent
        text = f"its call is under way for {duration(call_s + age_s)}: reports and claims wait"
        yield Problem("E322", text, None, "see in pg_stat_activity what it does or waits for")
    waits_s, queue_age_s = _number(numbers, "oldest_queued_s"), _number(numbers, "queue_age_s")
    if waits_s is None or late_s is None or not max_concurrency:
        return
    waits_s += age_s + (queue_age_s or 0.0)
    claimed_s = _number(numbers, "claimed_s")
    idle_s = up_s if claimed_s is None else claimed_s + age_s
    busy = (_number(numbers, "running") or 0) + (_number(numbers, "stuck") or 0)
    if min(waits_s, idle_s) >= late_s and busy < max_concurrency:
        yield _waiting(numbers, waits_s, idle_s, round(max_concurrency - busy))


def _failing(numbers: Mapping[str, Any], failing_s: float) -> Problem:
    error = numbers.get("line_error")
    error = error if isinstance(error, Mapping) else {}
    times = round(_number(numbers, "line_failures") or 1)
    often = "its last call failed" if times == 1 else f"its last {times} calls failed"
    state = f" ({error['code']})" if error.get("code") else ""
    what = ""
    if error.get("run"):
        task = f"/{error['task']}" if error.get("task") else ""
        what = f", for {short_id(str(error['run']))}{task}"
    text = (
        f"{often}, for {duration(failing_s)}{what}: {error.get('text') or 'no reason given'}{state}"
    )
    run = error.get("run")
    remedy = f"see `pgflowd runs show {short_id(str(run))} --attempts`" if run else LOOK
    return Problem("E322", text, None, remedy)


def _waiting(numbers: Mapping[str, Any], waits_s: float, idle_s: float, free: int) -> Problem:
    run = numbers.get("oldest_queued_run")
    whose = f" of run {short_id(str(run))}" if run else ""
    text = f"a task{whose} waits for {duration(waits_s)}, although {counted(free, 'runner')} "
    text += (
        f"{'is' if free == 1 else 'are'} free: no claim has brought a task for {duration(idle_s)}"
    )
    return Problem("E318", text, None, LOOK)


def _number(numbers: Mapping[str, Any], key: str) -> float | None:
    value: Any = numbers.get(key)
    return float(value) if is_number(value) else None
