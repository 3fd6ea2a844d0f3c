"""
Gathers what a worker's reports have ended, and sends it to the exporter as one portion.

What some turns have ended goes together, so that the exporter is seldom woken up and that tasks
for runners come first. A worker that is killed loses what is here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from pgflowd.core.worker.actions import SendSpans
from pgflowd.core.worker.spans import portion_of
from pgflowd.host.span_socket import SpanSender

WAIT_S = 0.05  # from a turn to the spans of what it has ended
ENOUGH = 256  # reports do not wait for more; a datagram has room for twice as many


class SpanBuffer:
    """The reports whose spans are yet to be sent."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sender: SpanSender,
        flow: str,
        hide: Callable[[str], str],
    ) -> None:
        self.deps: Mapping[str, Sequence[str]] = {}  # of the steps of the flow
        self._loop, self._sender = loop, sender
        self._flow, self._hide = flow, hide
        self._ended: list[SendSpans] = []
        self._reports = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, ended: SendSpans) -> None:
        self._ended.append(ended)
        before, self._reports = self._reports, self._reports + len(ended.reports)
        if self._timer is None:
            self._timer = self._loop.call_later(WAIT_S, self.send)
        if before < ENOUGH <= self._reports:
            self._loop.call_soon(self.send)

    def send(self) -> None:
        """A repeated report has the same spans; who reads them takes one."""
        if self._timer is not None:
            self._timer.cancel()
        ended, self._ended, self._reports, self._timer = self._ended, [], 0, None
        since = time.time() - time.monotonic()
        portion = portion_of(ended, since, self.deps, self._hide)
        if portion.attempts or portion.parts:
            self._sender.send_portion(self._flow, portion)
