"""Which runs a list shows: what `runs list` and the dashboard's address ask for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pgflowd.core.wishes import NEVER, Moment


@dataclass(frozen=True)
class RunFilter:
    """What runs of a list have in common; by default nothing."""

    flow: str | None = None
    statuses: Sequence[str] = ()
    since: Moment = NEVER  # they began after it, or were asked for
    until: Moment = NEVER
    labels: Mapping[str, str] = field(default_factory=dict)
    text: str = ""  # in their error or labels, or the first or last digits of their id
    with_undos: bool = False  # also runs that undo others

    @property
    def is_empty(self) -> bool:
        return self == RunFilter(with_undos=self.with_undos)
