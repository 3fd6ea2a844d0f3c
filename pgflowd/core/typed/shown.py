"""How errors show a wrong value: short, on one line, without what may be a secret."""

from __future__ import annotations

from typing import Any

from pgflowd.core.redact import HIDDEN, one_line, redact

MAX_SHOWN = 80  # characters


def shown(value: Any, key: str = "") -> str:
    """The value; `key` is that of the field that holds it."""
    text = one_line(redact(repr(value)[: 4 * MAX_SHOWN]), MAX_SHOWN)
    return HIDDEN if HIDDEN in redact(f"{key}={text}") else text
