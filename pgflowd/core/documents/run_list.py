"""A page of the list of runs, and how many there are, as programs and screens see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, NamedTuple
from uuid import UUID

from pgflowd.core.documents import Hidden, Named, shown
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
    """
    Some runs of a list.

    With `--status` it looks at the newest 100,000 runs of the flow and time that are asked for, as
    does a RUN that is given by its last digits. With `--status waiting` or `quarantined` alone it
    looks at the runs of all waits instead, however old they are, if there are at most 2,000.
    `--text` is sought in the error and in the labels, whatever the case, and as the first or last
    digits of the id; a whole id is found however old the run is.
    """

    runs: Annotated[Sequence[ListedRun], "the newest runs, the newest first"]
    seen: Annotated[int, "how many runs were examined"]
    next: Hidden[PageKey | None]  # behind which the next page begins; None: this is the last one
    count: Hidden[RunCount | None] = None  # None: not requested

    @property
    @shown
    def searched_to(
        self,
    ) -> Annotated[datetime | None, "when the oldest of these began; null if none is left"]:
        """No older run was examined; None: all were."""
        return self.next and self.next.at

    @property
    @shown
    def after(
        self,
    ) -> Annotated[str | None, Named("next"), "what `--after` takes to show the page behind this"]:
        return self.next and self.next.text

    @property
    @shown
    def found(self) -> Annotated[int | None, "how many runs fit, 1,001 for more than a thousand"]:
        return self.count.found if self.count else None

    @property
    @shown
    def found_to(
        self,
    ) -> Annotated[
        datetime | None, "back to when they were counted among the newest 20,000; null if all were"
    ]:
        return self.count.searched_to if self.count else None
