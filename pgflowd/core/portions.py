"""
How much one call takes of what waits: less after one that was too large, more after others.

A statement over many rows fails as a whole, and one that took too long would fail again for ever
if it were repeated unchanged. So whatever takes many at once has a portion: reports and claims of a
worker (`core.worker.task`), each part of a sweeper's work. One row that fails alone is put off,
so that the others go on. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

# of SQLSTATE: what less at once may mend. 53: no memory, disk or locks; 54: a limit of the program;
# 55P03: no lock in time; 57014: too long. None: the connection was lost, perhaps by this very call.
_SIZE_STATES = ("53", "54", "55P03", "57014")


class CallSize(NamedTuple):
    """How many one call takes, of at most so many."""

    most: int
    size: int
    factor: int = 10

    @property
    def is_whole(self) -> bool:
        return self.size == self.most

    @property
    def is_single(self) -> bool:
        return self.size == 1

    def cut(self) -> CallSize:
        """After a call that failed: a part of it, one at least."""
        return self._replace(size=smaller(self.size, self.factor))

    def grown(self) -> CallSize:
        """After a call that succeeded."""
        return self._replace(size=larger(self.size, self.most, self.factor))


def whole(most: int) -> CallSize:
    """The largest portion, with which one begins."""
    return CallSize(most, most)


def smaller(size: int, factor: int = 2) -> int:
    """How many to take after a call with so many that failed."""
    return max(1, size // factor)


def larger(size: int, most: int, factor: int = 2) -> int:
    """How many to take after a call that succeeded."""
    return min(most, factor * size)


def may_be_too_large(sqlstate: str | None) -> bool:
    """Whether a call that failed so may succeed with less."""
    return sqlstate is None or sqlstate.startswith(_SIZE_STATES)
