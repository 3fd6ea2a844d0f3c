"""What the parts of a worker's state are made of."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

NEVER = float("inf")


class Word(StrEnum):
    """A string that code compares. It hashes as fast as a string does."""

    __hash__ = str.__hash__


class Part:
    """A part of the state; a transition changes a copy of it."""

    def copy(self) -> Self:
        copied = object.__new__(type(self))
        copied.__dict__ = self.__dict__.copy()  # in a fifth of the time of copy.copy
        return copied
