"""
Follows a run to its end, for the clients: the events of `runs follow`, without what handlers print.
If the database goes away meanwhile, they wait until it is back.

`FollowedRun.next_events` is an operation: it returns the events since the last call, at once if
there are any, and else when something happens. It reads without notifications too, which may be
lost: after each change soon, then less often.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from uuid import UUID

import psycopg

from pgflowd.core.backoff import doubled_s
from pgflowd.core.documents.runs import TimelineEntry
from pgflowd.db import runs
from pgflowd.db.operations import (
    MAX_NAP_S,
    MAX_RECONNECT_S,
    MIN_RECONNECT_S,
    AsyncConnection,
    Connection,
    Hears,
    Listen,
    Nap,
    Now,
    Operation,
    run_async,
    run_sync,
)
from pgflowd.db.run_events import RunEvents
from pgflowd.errors import Unreachable

MIN_NAP_S = 0.1


class FollowedRun:
    """A run that is followed on one connection after the other."""

    def __init__(self, run_id: UUID, *, outputs: bool) -> None:
        self.run_id = run_id
        self._run = RunEvents(run_id)
        self._outputs = outputs
        self._follow_at = 0.0
        self._listens: set[UUID] = set()

    @property
    def has_ended(self) -> bool:
        return self._run.has_ended

    def again(self) -> None:
        """Another connection: nothing notifies it yet."""
        self._listens.clear()
        self._follow_at = 0.0

    def next_events(self) -> Operation[list[TimelineEntry]]:
        """NotFound for an unknown run."""
        nap_s = MIN_NAP_S
        while True:
            yield from self._listen(self.run_id)
            events = yield from self._run.read()
            if self._run.undo is not None and not self.has_ended:
                yield from self._listen(self._run.undo.run_id)
            if events or self.has_ended:
                return events if self._outputs else [replace(one, output=None) for one in events]
            yield Nap(nap_s, any_event=True)
            nap_s = min(nap_s * 1.5, MAX_NAP_S)

    def _listen(self, *run_ids: UUID) -> Operation[None]:
        """Have the events of these runs notified, again in time."""
        for run_id in run_ids:
            if run_id not in self._listens:
                self._listens.add(run_id)
                yield Listen(runs.channel(run_id))
                self._follow_at = 0.0
        now: float = yield Now()
        if now < self._follow_at:
            return
        self._follow_at = float("inf")
        if (yield Hears()):
            self._follow_at = now + (yield runs.follow(list(self._listens)))


def follow_sync(
    opened: Callable[[], Connection], run_id: UUID, *, outputs: bool
) -> Iterator[TimelineEntry]:
    """Yield the events of a run on a connection that is closed at the end, or opened again."""
    run, pause_s, conn = FollowedRun(run_id, outputs=outputs), 0.0, opened()
    try:
        while not run.has_ended:
            try:
                if conn.closed:
                    conn = opened()
                    run.again()
                events = run_sync(conn, run.next_events())
                pause_s = 0.0
            except (Unreachable, psycopg.OperationalError):
                conn.close()
                pause_s = doubled_s(pause_s, MIN_RECONNECT_S, MAX_RECONNECT_S)
                time.sleep(pause_s)
                continue
            yield from events
    finally:
        conn.close()


async def follow_async(
    opened: Callable[[], Awaitable[AsyncConnection]], run_id: UUID, *, outputs: bool
) -> AsyncIterator[TimelineEntry]:
    """Do the same with asyncio."""
    run, pause_s, conn = FollowedRun(run_id, outputs=outputs), 0.0, await opened()
    try:
        while not run.has_ended:
            try:
                if conn.closed:
                    conn = await opened()
                    run.again()
                events = await run_async(conn, run.next_events())
                pause_s = 0.0
            except (Unreachable, psycopg.OperationalError):
                await conn.close()
                pause_s = doubled_s(pause_s, MIN_RECONNECT_S, MAX_RECONNECT_S)
                await asyncio.sleep(pause_s)
                continue
            for event in events:
                yield event
    finally:
        await conn.close()
