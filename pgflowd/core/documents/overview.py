"""What needs attention in a database, in numbers, as programs and screens see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgflowd.core.documents import plain


@dataclass(frozen=True)
class OverviewCounts:
    """Each at most 1,001, which stands for any number above a thousand."""

    failed: int  # runs that started within a day
    people: int  # tasks that wait for the answer of a person
    quarantined: int  # tasks that wait until somebody decides
    stalled: int  # tasks whose lease has lapsed
    dead: int  # tasks that failed for good

    def to_json(self) -> dict[str, Any]:
        return plain(vars(self))
