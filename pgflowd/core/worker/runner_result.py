"""
Told: what a runner said of its task's end, made safe to pass on.

A runner's own frames are sound; but a handler shares its process and may write whatever it
likes into the socket. So nothing from there reaches a report unless it has the right type, can
be stored, and is no longer than a runner would send.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgflowd.core.failure import LONGEST_MESSAGE, LONGEST_TYPE, clean
from pgflowd.core.worker.failure_text import LONGEST_TRACEBACK

OUTCOMES = ("completed", "failed")
MOST_LEFT = 20
_TEXTS = {
    "error_type": LONGEST_TYPE,
    "error_message": LONGEST_MESSAGE,
    "traceback": LONGEST_TRACEBACK,
}
_NUMBERS = {"delay_s": 1e9, "cpu_s": 1e9, "peak_kb": 1e15}


def fields_of(head: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a report, as far as they are what they should be."""
    fields: dict[str, Any] = {}
    for name, longest in _TEXTS.items():
        if isinstance(head.get(name), str):
            fields[name] = clean(head[name], longest)
    for name, most in _NUMBERS.items():
        value = _number(head.get(name), most)
        if value is not None:
            fields[name] = int(value) if name == "peak_kb" else value
    if head.get("retry") is False:
        fields["retry"] = False
    return fields


def _number(value: Any, most: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= most else None  # NaN is neither


def left_of(head: Mapping[str, Any]) -> tuple[str, ...]:
    """What the task left behind."""
    left = head.get("left")
    return tuple(map(str, left[:MOST_LEFT])) if isinstance(left, list) else ()


def fault_of(head: Mapping[str, Any], body: bytes) -> str | None:
    """What is wrong with a `done`, if anything."""
    if head.get("outcome") not in OUTCOMES:
        return f"an unknown outcome: {str(head.get('outcome'))[:60]}"
    if head["outcome"] == "completed":
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            return f"an output that is no UTF-8: {error}"
        if not text or "\0" in text:
            return "an output that is no JSON"
    return None
