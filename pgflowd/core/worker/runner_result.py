"""
What a runner sends at the end of its task, made safe to pass on.

A runner's own frames are sound; but a handler shares its process and may write anything into the
socket. So nothing from there reaches a report unless it has the right type, can be stored, and is
no longer than a runner would send.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgflowd.core.failure import MAX_MESSAGE_CHARS, MAX_TYPE_CHARS, clean
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.events import NOTHING_LEFT, LeftBehind
from pgflowd.core.worker.failure_text import MAX_TRACEBACK_CHARS
from pgflowd.core.worker.task import Task, TaskReport

_OUTCOMES = {each.value: each for each in (Outcome.COMPLETED, Outcome.FAILED)}
MAX_NAMES = 20  # of what a task left behind
_TEXTS = {
    "error_type": MAX_TYPE_CHARS,
    "error_message": MAX_MESSAGE_CHARS,
    "traceback": MAX_TRACEBACK_CHARS,
}
_NUMBERS = {"delay_s": 1e9, "cpu_s": 1e9, "peak_kb": 1e15}


def report_of(task: Task, head: Mapping[str, Any], body: bytes) -> TaskReport:
    """The report of a sound result, with those fields that are what they should be."""
    outcome = _OUTCOMES[head["outcome"]]
    output = body if outcome is Outcome.COMPLETED else None
    fields: dict[str, Any] = {}
    for name, longest in _TEXTS.items():
        if isinstance(head.get(name), str):
            fields[name] = clean(head[name], longest)
    for name, most in _NUMBERS.items():
        if (value := _number(head.get(name), most)) is not None:
            fields[name] = int(value) if name == "peak_kb" else value
    return TaskReport(task, outcome, output, retry=head.get("retry") is not False, **fields)


def _number(value: Any, most: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= most else None  # NaN is neither


def left_behind(head: Mapping[str, Any]) -> LeftBehind:
    """What the task left behind in its process."""
    left = head.get("left")
    if not left or not isinstance(left, dict):
        return NOTHING_LEFT
    return LeftBehind(*(_names(left.get(name)) for name in ("children", "reset", "tasks")))


def _names(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value[:MAX_NAMES])) if isinstance(value, list) else ()


def fault_of(head: Mapping[str, Any], body: bytes) -> str | None:
    """What is wrong with a result, if anything."""
    outcome = head.get("outcome")
    if not isinstance(outcome, str) or outcome not in _OUTCOMES:
        return f"an unknown outcome: {str(outcome)[:60]}"
    if outcome == Outcome.COMPLETED:
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            return f"an output that is not UTF-8: {error}"
        if not text or "\0" in text:
            return "an output that is not JSON"
    return None
