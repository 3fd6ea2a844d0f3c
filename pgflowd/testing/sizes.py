"""Refuses what is too large for the database, as that does with its default settings."""

from __future__ import annotations

from typing import Any

from pgflowd.core.json import dumps
from pgflowd.errors import TooLarge

MAX_BYTES = 1 << 20  # of a checkpoint or a signal: the setting `checkpoint_max`


def refuse_too_large(value: Any, what: str) -> None:
    """Raise E424 for a value that no checkpoint can keep."""
    size = len(dumps(value).encode())
    if size > MAX_BYTES:
        text = f"{what} has {size} bytes, and {MAX_BYTES} are allowed"
        raise TooLarge(text, next="store it elsewhere, and keep a reference to it")
