"""Refuses what is too much for the database, as that does with its default settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgflowd.core.json import dumps
from pgflowd.core.waiting import Checkpoint
from pgflowd.errors import TooLarge

MAX_BYTES = 1 << 20  # of a checkpoint or a signal: the setting `checkpoint_max`
MAX_CHECKPOINTS = 10_000  # of a task


def refuse_too_large(value: Any, what: str) -> None:
    """Raise E424 for a value that no checkpoint can keep."""
    size = len(dumps(value).encode())
    if size > MAX_BYTES:
        text = f"{what} has {size} bytes, and {MAX_BYTES} are allowed"
        raise TooLarge(text, next="store it elsewhere, and keep a reference to it")


def refuse_checkpoint(checkpoint: Checkpoint, saved: Mapping[str, Checkpoint]) -> None:
    """Raise E424 for a checkpoint that is too large, or one too many beside those."""
    refuse_too_large(checkpoint.data, f"checkpoint '{checkpoint.name}'")
    if checkpoint.name not in saved and len(saved) >= MAX_CHECKPOINTS:
        text = f"the task has {MAX_CHECKPOINTS} checkpoints already"
        raise TooLarge(text, next="save many values under one name, or drop some")
