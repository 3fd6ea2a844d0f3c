"""
What a handler tells of its progress: made by `ctx.progress`, checked, and shown.

A runner sends at most twenty values a second, and the last one with the result; a worker writes at
most once a second for all its tasks (`core.worker.task`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from numbers import Integral, Real
from typing import Annotated, Any

from pgflowd.core.documents import shown
from pgflowd.core.failure import clean
from pgflowd.core.json import encode, loads
from pgflowd.core.text import size
from pgflowd.errors import OutputError, TooLarge

MAX_BYTES = 8000  # of a value, as JSON
MAX_TEXT_CHARS = 200
BAR_CELLS = 10
BURST = 20  # values that a task may send at once, and afterwards in a second
_KEYS = {"done", "total", "text", "detail"}

Document = dict[str, Any]


def progress_of(done: Any, total: Any, text: Any, detail: Mapping[str, Any]) -> Document:
    """What a handler tells, as it is sent. TypeError, ValueError, E403 or E424 if it cannot be."""
    told: Document = {"done": _number(done, "done")}
    if total is not None:
        told["total"] = _number(total, "total")
    if text:
        told["text"] = clean(str(text), MAX_TEXT_CHARS)
    if detail:
        told["detail"] = dict(detail)
    length = len(encode(told, what="progress").encode())
    if length > MAX_BYTES:
        what = f"the progress has {size(length)}, and {size(MAX_BYTES)} are allowed"
        raise TooLarge(what, next="tell less; `ctx.save` keeps more")
    return told


def _number(value: Any, name: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"ctx.progress: {name} is {value!r:.60}, which is not a number")
    number = int(value) if isinstance(value, Integral) else float(value)
    if not _is_finite(number):
        raise ValueError(f"ctx.progress: {name} is {value!r:.60}")
    return number


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an int beyond all floats
        return False


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and _is_finite(value)


def is_sound(body: bytes) -> bool:
    """Whether a runner would send this: whatever a handler writes into the socket may arrive."""
    if len(body) > MAX_BYTES:
        return False
    try:
        told = loads(body)
        encode(told)
    except (ValueError, RecursionError, OutputError):
        return False
    return (
        isinstance(told, dict)
        and "done" in told
        and told.keys() <= _KEYS
        and all(_is_number(told.get(name, 0)) for name in ("done", "total"))
        and isinstance(told.get("text", ""), str)
        and isinstance(told.get("detail", {}), dict)
    )


@dataclass(frozen=True)
class Progress:
    """What a handler has told, as the database has it."""

    done: Annotated[float, "what the handler told as done"]
    total: Annotated[float | None, "of how much"]
    text: Annotated[str, "what it does"]
    detail: Mapping[str, Any]
    at: Annotated[datetime | None, "when it told so"]

    @staticmethod
    def read(value: Any) -> Progress | None:
        """Of a column; None if nothing was told, or by somebody else than a worker of ours."""
        if not isinstance(value, dict) or not _is_number(value.get("done")):
            return None
        total, detail, at = value.get("total"), value.get("detail"), None
        with suppress(ValueError, OverflowError):
            at = datetime.fromisoformat(str(value.get("at"))).astimezone(UTC)
        return Progress(
            value["done"],
            total if _is_number(total) else None,
            str(value.get("text") or ""),
            detail if isinstance(detail, dict) else {},
            at,
        )

    @property
    @shown
    def share(self) -> float | None:
        """How much is done, from 0 to 1; None if nobody knows of how much."""
        return (
            None if not self.total or self.total < 0 else min(1.0, max(0.0, self.done / self.total))
        )

    @property
    def words(self) -> str:
        """Such as `12/30 pages`."""
        number = _short(self.done)
        if self.total is not None:
            number += f"/{_short(self.total)}"
        return f"{number} {self.text}".rstrip()

    def shown(self, full: str, empty: str) -> str:
        """The words, behind a bar of these signs where the share is known."""
        return self.words if self.share is None else f"{bar(self.share, full, empty)} {self.words}"


def bar(share: float, full: str, empty: str) -> str:
    cells = int(share * BAR_CELLS)
    return full * cells + empty * (BAR_CELLS - cells)


def _short(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.6g}"
