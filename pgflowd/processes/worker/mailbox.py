"""
The mailbox: events that the engine has not seen yet, for a loop of asyncio.

A loop that takes events which are there does not let other tasks run; only an empty mailbox waits.
"""

from __future__ import annotations

import asyncio

from pgflowd.core.worker.events import Tick, WorkerEvent
from pgflowd.core.worker.task import NEVER


class Mailbox:
    """Events that the engine has not seen yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._events: list[WorkerEvent] = []
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = loop

    def put(self, event: WorkerEvent) -> None:
        self._events.append(event)
        self._wake()

    async def next(self, until: float) -> list[WorkerEvent]:
        """Return all that came, or a Tick at that moment, and now and then before."""
        if not self._events:
            self._waiter = self._loop.create_future()
            if until != NEVER:
                self._wake_by(until)
            await self._waiter
            self._waiter = None
        arrived, self._events = self._events, []
        return arrived or [Tick()]

    def _wake_by(self, moment: float) -> None:
        """Set the timer; an earlier one stays, since a new one each time is expensive."""
        if self._timer is not None:
            if self._timer.when() <= moment:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(moment, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
