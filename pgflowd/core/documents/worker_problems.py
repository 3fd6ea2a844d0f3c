"""
Judges by the numbers of workers and the sweeper whether their work stands still, which makes a
daemon degraded.

A flow with a backlog whose runners are all busy, or whose claims bring tasks, is only busy. Each
part of the sweeper's work gets done within three intervals. Numbers may be old, or missing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pgflowd.core.metrics.counters import is_number
from pgflowd.core.sweeper import SweeperPart
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


INTERVALS = 3
MIN_S = 15.0  # three heartbeats: numbers are so old as a rule
SEE_SWEEPER = "see sweeper.failed in the daemon's log, and `pgflowd doctor`"
BEHIND = "see E324 above, or what the database is busy with in pg_stat_activity"


def problems_of_sweeper(
    numbers: Mapping[str, Any], *, monotonic: float, started_at: float
) -> Iterator[Problem]:
    """Yield what of a sweeper's work is not done; `started_at`: since when it should."""
    parts = numbers.get("parts")
    parts = parts if isinstance(parts, Mapping) else {}
    late: list[tuple[float, SweeperPart, Mapping[str, Any]]] = []
    for part in SweeperPart:
        known = parts.get(part.value)
        known = known if isinstance(known, Mapping) else {}
        late_s = _late_s(known, monotonic, started_at)
        if late_s >= _limit_s(numbers):
            late.append((late_s, part, known))
        elif known.get("code") not in (None, "E331"):  # it says itself what is wrong
            yield Problem(
                str(known["code"]), f"{part}: {known.get('text')}", "database", known.get("next")
            )
    if late:
        late_s, part, known = max(late, key=lambda each: ("text" in each[2], each[0]))
        names = ", ".join(each.value for _, each, _ in late)
        text = f"the sweeper has not got done for {duration(late_s)}: {names}"
        if known.get("text"):
            text += f"; the last error ({part}): {known['text']}"
        yield Problem("E331", text, "database", known.get("next") or SEE_SWEEPER)
    due_s = due_late_s(numbers, monotonic=monotonic, started_at=started_at)
    if due_s is not None and due_s >= _limit_s(numbers) and not late:
        yield Problem("E331", f"what is due is late by {duration(due_s)}", "database", BEHIND)


def due_late_s(
    numbers: Mapping[str, Any], *, monotonic: float, started_at: float | None
) -> float | None:
    """How late what is due is: as the sweeper has told, or for how long it has not got to it."""
    told: Any = numbers.get("due_late_s")
    told_s = float(told) if is_number(told) else None
    if started_at is None:
        return told_s
    parts = numbers.get("parts")
    known = parts.get(SweeperPart.DUE.value) if isinstance(parts, Mapping) else None
    late_s = _late_s(known if isinstance(known, Mapping) else {}, monotonic, started_at)
    return max(told_s or 0.0, late_s) if late_s >= _limit_s(numbers) else told_s


def _late_s(known: Mapping[str, Any], monotonic: float, started_at: float) -> float:
    at: Any = known.get("at")
    return max(0.0, monotonic - max(started_at, float(at) if is_number(at) else started_at))


def _limit_s(numbers: Mapping[str, Any]) -> float:
    interval_s: Any = numbers.get("interval_s")
    return max(MIN_S, INTERVALS * float(interval_s) if is_number(interval_s) else MIN_S)
