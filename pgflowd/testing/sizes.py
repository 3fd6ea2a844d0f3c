"""Refuses what is too much for the database, as that does with its default settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pgflowd.core.json import dumps
from pgflowd.core.waiting import Checkpoint
from pgflowd.errors import TooLarge

MAX_BYTES = 1 << 20  # of a checkpoint or a signal: the setting `checkpoint_max`
MAX_CHECKPOINTS = 10_000  # of a task
MAX_BYTES_IN_ALL = 64 << 20  # which they have together


def refuse_too_large(value: Any, what: str) -> None:
    """Raise E424 for a value that no checkpoint can keep."""
    size = _size(value)
    if size > MAX_BYTES:
        text = f"{what} has {size} bytes, and {MAX_BYTES} are allowed"
        raise TooLarge(text, next="store it elsewhere, and keep a reference to it")


class Room:
    """What a task may keep beside these checkpoints of it."""

    def __init__(self, saved: Iterable[Checkpoint]) -> None:
        self._sizes = {each.name: _size(each.data) for each in saved}
        self._bytes = sum(self._sizes.values())

    def take(self, checkpoint: Checkpoint) -> None:
        """Raise E424 for a checkpoint that is too large, or one too many."""
        name = checkpoint.name
        refuse_too_large(checkpoint.data, f"checkpoint '{name}'")
        if name not in self._sizes and len(self._sizes) >= MAX_CHECKPOINTS:
            text = f"the task has {MAX_CHECKPOINTS} checkpoints already"
            raise TooLarge(text, next="save many values under one name, or drop some")
        size = _size(checkpoint.data)
        others = self._bytes - self._sizes.get(name, 0)
        if others + size > MAX_BYTES_IN_ALL:
            text = f"the checkpoints of the task have {others} bytes already"
            text += f", and {MAX_BYTES_IN_ALL} are allowed in all"
            raise TooLarge(text, next="save references to the data, or drop some")
        self._sizes[name], self._bytes = size, others + size

    def give_back(self, name: str) -> None:
        self._bytes -= self._sizes.pop(name)


def _size(value: Any) -> int:
    return len(dumps(value).encode())
