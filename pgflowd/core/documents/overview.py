"""What needs attention in a database, in numbers, as programs and screens see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class OverviewCounts:
    """Each at most 1,001, which stands for any number above a thousand."""

    failed: Annotated[int, "runs that failed and started within a day"]
    people: Annotated[int, "tasks that wait for people"]
    quarantined: Annotated[int, "tasks in quarantine"]
    stalled: Annotated[int, "tasks that have stalled"]
    dead: Annotated[int, "tasks that have failed for good"]
