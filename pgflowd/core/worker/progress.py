"""
What handlers have told of their progress, on its way to the database.

Of each task only the last value counts. All that are new are written at most once a second, by
one side call (`core.worker.connections`). A value that is not known to be in the database goes with
the report of its task. Whatever is lost or refused disturbs nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pgflowd.core.worker.part import NEVER

PAUSE_S = 1.0  # between two writes
NO_VALUES: Mapping[int, bytes] = MappingProxyType({})


class ProgressValues(NamedTuple):
    """The values, as JSON, by token; never changed, but replaced."""

    new: Mapping[int, bytes] = NO_VALUES
    writing: Mapping[int, bytes] = NO_VALUES  # by the call under way
    write_from: float = 0.0

    @property
    def due_at(self) -> float:
        """When to write, if a connection is free."""
        return self.write_from if self.new and not self.writing else NEVER

    def told(self, token: int, value: bytes) -> ProgressValues:
        return self._replace(new={**self.new, token: value})

    def begin(self, tokens: set[int], now: float) -> ProgressValues:
        """Write those of these tasks; others have ended without a report."""
        wanted = {token: value for token, value in self.new.items() if token in tokens}
        return ProgressValues(writing=wanted, write_from=now + PAUSE_S)

    def written(self, stored: Collection[int]) -> ProgressValues:
        """The call under way has ended: what it has not stored is as new as before."""
        again = {token: value for token, value in self.writing.items() if token not in stored}
        return self._replace(new={**again, **self.new}, writing=NO_VALUES)

    def get(self, token: int) -> bytes | None:
        """The last value of a task, unless the database has it."""
        return self.new.get(token) or self.writing.get(token)

    def without(self, token: int) -> ProgressValues:
        new = {key: value for key, value in self.new.items() if key != token}
        writing = {key: value for key, value in self.writing.items() if key != token}
        return self._replace(new=new, writing=writing)


NO_PROGRESS = ProgressValues()
