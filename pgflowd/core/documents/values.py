"""A part of a value that may be large, with some of its members, as programs and screens see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pgflowd.core.documents import Named, shown


@dataclass(frozen=True)
class ValueMember:
    """A member of an object or array; its fields are the keys of its document."""

    name: Annotated[str, "its key or index"]
    type: Annotated[str, "its type, as `jsonb_typeof` has it"]
    length: Annotated[int | None, "how many members or characters it has"]
    is_whole: Annotated[bool, Named("whole"), "whether `value` is all of it"]
    value: Annotated[Any, "of a text that is too long its beginning; null for what has members"]


@dataclass(frozen=True)
class ValuePart:
    """What is at a path of an input or output, from a member or character on."""

    path: Annotated[
        Sequence[str], "the keys and indexes that lead to it; empty for the whole value"
    ]
    start: Annotated[int, "at which member or character it begins"]
    type: Annotated[str, "its type, as `jsonb_typeof` has it"]
    length: Annotated[int | None, "how many members or characters it has"]
    is_whole: Annotated[bool, Named("whole"), "whether this is all of it"]
    value: Annotated[Any, "the value; null for an object or array, which has members"]
    members: Annotated[Sequence[ValueMember], "of an object or array"]

    @property
    @shown
    def next(
        self,
    ) -> Annotated[int | None, "where the next part begins; null if this is the last one"]:
        """Where the next part begins; None: this is the last one."""
        shown = len(self.value) if self.type == "string" else len(self.members)
        end = self.start + shown
        return end if shown and self.length is not None and end < self.length else None
