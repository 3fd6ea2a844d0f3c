"""
Mailbox: the events that came and were not looked at yet, for a loop of asyncio.

Whoever takes events that are there does not give way to others; only an empty mailbox waits.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pgflowd.core.worker import events


class Mailbox:
    """Events that came and were not looked at yet."""

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def put(self, event: Any) -> None:
        self._events.append(event)
        self._wake()

    async def next(self, timeout_s: float | None) -> list[Any]:
        """Return all that came, or a Tick when the time is over, and now and then before."""
        if not self._events:
            self._waiter = self._loop.create_future()
            if timeout_s is not None:
                self._wake_by(self._loop.time() + timeout_s)
            await self._waiter
            self._waiter = None
        arrived, self._events = self._events, []
        return arrived or [events.Tick()]

    def _wake_by(self, moment: float) -> None:
        """Set the timer; an earlier one is left alone, as making one anew each time is dear."""
        if self._timer is not None:
            if self._timer.when() <= moment:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(moment, self._time_is_over)

    def _time_is_over(self) -> None:
        self._timer = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
