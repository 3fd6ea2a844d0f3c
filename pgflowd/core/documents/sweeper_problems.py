"""
Judges, outside the sweeper, whether its work gets done: each part within three intervals.

What it tells may be old, or missing: then the part is late. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pgflowd.core.metrics.counters import is_number
from pgflowd.core.sweeper import SweeperPart
from pgflowd.core.text import duration
from pgflowd.errors import Problem

INTERVALS = 3
MIN_S = 15.0  # three heartbeats: numbers are so old as a rule
LOOK = "see sweeper.failed in the daemon's log, and `pgflowd doctor`"
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
        yield Problem("E331", text, "database", known.get("next") or LOOK)
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
