"""
Writes the daemon's row, so that its status can be seen from anywhere.

The sweeper asks the supervisor for the status document, gets it in parts, and writes it; the
supervisor also sends it unasked when the daemon ends. Nothing is kept: a sweeper that was killed
asks anew. An older schema has no such rows, and a role may lack the right: then nothing is written
until the next connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from pgflowd.core.daemon_rows import RowTimes
from pgflowd.core.documents.daemons import ENDING, stored
from pgflowd.core.json import dumps, loads
from pgflowd.core.messages import StatusPart, StatusWanted
from pgflowd.db.daemons import tell_daemon
from pgflowd.db.query import Query
from pgflowd.errors import AccessDenied, DatabaseError
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log


class DaemonRow:
    """The parts that have come, and when the next are asked for."""

    def __init__(
        self, interval_s: float, channel: Channel, execute: Callable[..., Any], log: Log
    ) -> None:
        self.times = RowTimes(interval_s)
        self._channel = channel
        self._execute = execute
        self._log = log
        self._parts: list[str] = []
        self._status: dict[str, Any] | None = None  # that is to be written
        self._is_refused = False

    def connected(self, now: float) -> None:
        self._is_refused = False
        self.times.connected(now)

    def receive(self, message: StatusPart) -> None:
        self._parts.append(message.part)
        if message.is_last:
            self._status, self._parts = loads("".join(self._parts)), []

    @property
    def look_at(self) -> float:
        """When there is something to do: at once, if a status has come."""
        return self.times.ask_at if self._status is None else 0.0

    def do(self, conn: psycopg.Connection[Any]) -> None:
        """Write what has come, and ask for the next status if it is time."""
        now = time.monotonic()
        if (query := self._take()) and not self._is_refused:
            try:
                self._execute(conn, query)
            except (AccessDenied, DatabaseError) as error:
                self._is_refused = True
                text = f"the row of this daemon cannot be written: {error.text}"
                fields = {"code": error.code, "error": text, "next": error.next}
                self._log.warning("sweeper.problem", **fields)
        if now >= self.times.ask_at:
            self._channel.send(StatusWanted())
            self.times.asked(now)

    def last(self) -> Query[None] | None:
        """What is to be written as the daemon ends; nothing if only the sweeper does."""
        is_ending = self._status is not None and self._status.get("state") in ENDING
        return self._take() if is_ending and not self._is_refused else None

    def _take(self) -> Query[None] | None:
        status, self._status = self._status, None
        if status is None:
            return None
        return tell_daemon(dumps(stored(status, self._log.without_secrets)))
