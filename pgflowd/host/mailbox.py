"""
Mailbox: the events that came and were not looked at yet, for a loop of asyncio.

Whoever takes an event that is there does not give way to others; only an empty mailbox waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from pgflowd.core import happenings as on


class Mailbox:
    """Events that came and were not looked at yet."""

    def __init__(self) -> None:
        self._events: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    def put(self, event: Any) -> None:
        self._events.append(event)
        self._wake()

    async def next(self, timeout_s: float | None) -> Any:
        """Return the next event, or Tick when the time is over."""
        if not self._events:
            self._waiter = self._loop.create_future()
            timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._wake)
            await self._waiter
            self._waiter = None
            if timer is not None:
                timer.cancel()
        return self._events.popleft() if self._events else on.Tick()

    @property
    def is_empty(self) -> bool:
        return not self._events

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
