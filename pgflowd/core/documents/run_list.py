"""A page of the list of runs, and how many there are, as programs and screens see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from pgflowd.core.documents import plain
from pgflowd.core.documents.runs import ListedRun

MAX_COUNTED = 1000  # of what a list finds; one more stands for any number above


class PageKey(NamedTuple):
    """The run behind which a page begins: when it began, or was asked for, and its id."""

    at: datetime
    run_id: UUID

    @property
    def text(self) -> str:
        return f"{self.at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}_{self.run_id}"

    @classmethod
    def read(cls, text: str) -> PageKey:
        """The key that has this text. Another text is a ValueError."""
        moment, _, run_id = text.partition("_")
        at = datetime.strptime(moment, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        return cls(at, UUID(run_id))


@dataclass(frozen=True)
class RunCount:
    """How many runs fit; at most one more than `MAX_COUNTED`."""

    found: int
    seen: int  # how many were examined for it
    searched_to: datetime | None  # it has counted no older ones; None: it has counted all


@dataclass(frozen=True)
class RunPage:
    """Some runs of a list, newest first."""

    runs: Sequence[ListedRun]
    seen: int  # how many were examined for it
    next: PageKey | None  # behind which the next page begins; None: this is the last one
    count: RunCount | None = None  # None: not requested

    @property
    def searched_to(self) -> datetime | None:
        """No older run was examined; None: all were."""
        return self.next and self.next.at

    def to_json(self) -> dict[str, Any]:
        return plain({
            "runs": [run.to_json() for run in self.runs],
            "seen": self.seen,
            "searched_to": self.searched_to,
            "next": self.next and self.next.text,
            "found": self.count and self.count.found,
            "found_to": self.count and self.count.searched_to,
        })  # fmt: skip
