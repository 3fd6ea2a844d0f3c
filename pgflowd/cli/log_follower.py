"""
Follows a log of the database: what it reads again and again, it yields once.

An entry is written when its transaction commits, with a moment that may be long over by then. So
each look begins a minute before the last moment that it knows, each minute one reads everything,
and so does the last one. Entries are known by their keys; none is missed, and none comes twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

import psycopg

from pgflowd.core.backoff import doubled_s
from pgflowd.db.query import Query, execute
from pgflowd.errors import Unreachable

OVERLAP = timedelta(minutes=1)
WHOLE_S = 60.0  # from one look at everything to the next
MIN_PAUSE_S, SHARE = 0.5, 10  # between two looks; at most a tenth of the time is spent reading
MIN_RECONNECT_S, MAX_RECONNECT_S = 0.1, 5.0


class LogEntry(Protocol):
    """Something that has a moment and a key."""

    @property
    def at(self) -> datetime: ...

    @property
    def key(self) -> Hashable: ...


E = TypeVar("E", bound=LogEntry)


class LogFollower(Generic[E]):
    """Yields the entries of a log as they come, the oldest first."""

    def __init__(
        self,
        conn: psycopg.Connection[Any],
        read: Callable[[datetime | None], Query[list[E]]],
        reopen: Callable[[], psycopg.Connection[Any]],
    ) -> None:
        self._conn, self._query, self._reopen = conn, read, reopen
        self._known: set[Hashable] = set()
        self._last: datetime | None = None
        self._whole_at = 0.0

    def seen(self) -> list[E]:
        """What is there already; it does not come again."""
        return self._look()

    def follow(self, is_over: Callable[[list[E]], bool] = lambda entries: False) -> Iterator[E]:
        """Yield entries until new ones say that it is over, for ever if none do."""
        while True:
            began = time.monotonic()
            new = self._look()
            if is_over(new):
                yield from new
                self._whole_at = 0.0
                yield from self._look()
                return
            yield from new
            time.sleep(max(MIN_PAUSE_S, (time.monotonic() - began) * SHARE))

    def _look(self) -> list[E]:
        """The entries that are new."""
        now = time.monotonic()
        is_whole = self._last is None or now >= self._whole_at
        after = None if self._last is None or is_whole else self._last - OVERLAP
        found = self._read(after)
        if is_whole:
            self._whole_at = now + WHOLE_S
        new = [entry for entry in found if entry.key not in self._known]
        new.sort(key=lambda entry: entry.at)  # the order of one moment stays
        self._known.update(entry.key for entry in new)
        self._last = max((entry.at for entry in found), default=self._last)
        return new

    def _read(self, after: datetime | None) -> list[E]:
        """Read the log; if the connection is lost, on a new one."""
        pause_s = MIN_RECONNECT_S
        while True:
            try:
                return execute(self._conn, self._query(after))
            except (Unreachable, psycopg.OperationalError):
                self._conn.close()
            time.sleep(pause_s)
            pause_s = doubled_s(pause_s, MIN_RECONNECT_S, MAX_RECONNECT_S)
            try:
                self._conn = self._reopen()
            except (Unreachable, psycopg.OperationalError):
                continue
