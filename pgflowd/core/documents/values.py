"""A part of a value that may be large, with some of its members, as programs and screens see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgflowd.core.documents import plain


@dataclass(frozen=True)
class ValueMember:
    """A member of an object or array; its fields are the keys of its document."""

    name: str  # its key, or its index
    type: str  # as jsonb_typeof has it
    length: int | None  # of members or characters; None for what has neither
    is_whole: bool  # whether `value` is all of it
    value: Any  # of a string that is too long its beginning; of others None

    def to_json(self) -> dict[str, Any]:
        return plain({
            "name": self.name,
            "type": self.type,
            "length": self.length,
            "whole": self.is_whole,
            "value": self.value,
        })  # fmt: skip


@dataclass(frozen=True)
class ValuePart:
    """What is at a path of an input or output, from a member or character on."""

    path: Sequence[str]  # keys and indexes; empty: the whole value
    start: int
    type: str
    length: int | None
    is_whole: bool
    value: Any  # None for an object or array, which has members
    members: Sequence[ValueMember]

    @property
    def next(self) -> int | None:
        """Where the next part begins; None: this is the last one."""
        shown = len(self.value) if self.type == "string" else len(self.members)
        end = self.start + shown
        return end if shown and self.length is not None and end < self.length else None

    def to_json(self) -> dict[str, Any]:
        return plain({
            "path": list(self.path),
            "start": self.start,
            "type": self.type,
            "length": self.length,
            "whole": self.is_whole,
            "value": self.value,
            "members": [member.to_json() for member in self.members],
            "next": self.next,
        })  # fmt: skip
