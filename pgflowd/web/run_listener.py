"""
Hears of the runs that somebody views, on one connection for all tabs.

A notification is a hint to read a run again, or a line that a handler has printed. The runs are
followed (`pgflowd.follow`) for as long as somebody views them. Through a transaction pooler no
notification comes, so nothing is followed there.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from psycopg import sql

from pgflowd.db import runs
from pgflowd.db.connection import is_pooled, translated
from pgflowd.db.query import execute
from pgflowd.errors import AccessDenied
from pgflowd.web.connections import Connection


class Heard(NamedTuple):
    """A notification about a run; with a payload it is a line of output."""

    run_id: UUID
    payload: str | None


class RunListener:
    """One connection that listens, opened with the first run."""

    def __init__(self, open: Callable[[], Connection]) -> None:
        self._open = open
        self._conn: Connection | None = None
        self._forget()

    def _forget(self) -> None:
        self._channels: dict[str, UUID] = {}
        self._outputs: dict[str, UUID] = {}
        self._follow_at = 0.0
        self._may_follow = self._may_hear_output = True

    def close(self) -> None:
        """Hear nothing more; the next call of `follow` connects again."""
        if self._conn is not None:
            self._conn.pgconn.finish()
        self._conn = None
        self._forget()

    def follow(self, wanted: Mapping[UUID, bool]) -> set[UUID]:
        """
        Hear of these runs from now on, and of their output where that is true.

        Return the runs to read now, since what happened in them before may not have been heard.
        """
        if self._conn is None:
            if not wanted:
                return set()
            self._conn = self._open()
            self._may_follow = not is_pooled(self._conn)
        if not self._may_follow:
            return set()
        new = set(wanted) - set(self._channels.values())
        with_output = {run_id for run_id, is_wanted in wanted.items() if is_wanted}
        new |= with_output - set(self._outputs.values()) if self._may_hear_output else set()
        self._listen(self._conn, wanted, with_output)
        now = time.monotonic()
        if not wanted or (not new and now < self._follow_at):
            return set()
        pause_s = self._follow(self._conn, set(wanted) - with_output, with_output)
        self._follow_at = now + pause_s
        return set(wanted) if pause_s < runs.FOLLOW_AGAIN_S else new

    def _listen(
        self, conn: Connection, wanted: Mapping[UUID, bool], with_output: set[UUID]
    ) -> None:
        """Listen on the channels of these runs and on no others."""
        channels = {runs.channel(run_id): run_id for run_id in wanted}
        outputs = {name: run for name, run in self._outputs.items() if run in with_output}
        if self._may_hear_output and (new := with_output - set(outputs.values())):
            try:
                found: dict[str, UUID] = execute(conn, runs.output_channels(list(new)))
                outputs |= found
            except AccessDenied:  # the rest is complete without
                self._may_hear_output = False
        before, after = {*self._channels, *self._outputs}, {*channels, *outputs}
        with translated(conn):
            for verb, names in (("unlisten", before - after), ("listen", after - before)):
                for name in names:
                    conn.execute(sql.SQL(f"{verb} {{}}").format(sql.Identifier(name)))
        self._channels, self._outputs = channels, outputs

    def _follow(self, conn: Connection, plain: set[UUID], with_output: set[UUID]) -> float:
        """Have their events notified for a while; in how many seconds to ask again."""
        pauses = [runs.FOLLOW_AGAIN_S]
        if plain:
            pauses.append(execute(conn, runs.follow(list(plain))))
        if with_output:
            query = runs.follow(list(with_output), with_output=self._may_hear_output)
            pauses.append(execute(conn, query))
        return min(pauses)

    @property
    def follow_at(self) -> float:
        """When to call `follow` again, by the monotonic clock."""
        return self._follow_at if self._channels else float("inf")

    def wait(self, wake: int, max_s: float) -> list[Heard]:
        """Wait for a notification, or until somebody writes to `wake`."""
        if heard := self._heard():
            return heard
        poll = select.poll()  # unlike select it knows large descriptors
        poll.register(wake, select.POLLIN)
        if self._conn is not None:
            poll.register(self._conn.pgconn.socket, select.POLLIN)
        poll.poll(max(max_s, 0.0) * 1000)
        return self._heard()

    def _heard(self) -> list[Heard]:
        if self._conn is None:
            return []
        with translated(self._conn):
            notices = list(self._conn.notifies(timeout=0))
        heard = []
        for notice in notices:
            if run_id := self._channels.get(notice.channel):
                heard.append(Heard(run_id, None))
            elif run_id := self._outputs.get(notice.channel):
                heard.append(Heard(run_id, notice.payload))
        return heard
