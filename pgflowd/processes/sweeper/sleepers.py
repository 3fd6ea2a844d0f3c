"""
Looks after sleeping workers: at their queues, their rows and their doorbells.

All queues that are due are looked at in one statement. Workers with a visible message are woken; of
others it is told when the next one will be visible. Their rows are renewed, since they count as
served. Their doorbells are kept up until they wake; one that the server had lost is proved as
workers do (docs/background/doorbells.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from pgflowd.core.messages import Asleep, NextDue, Wake
from pgflowd.core.settings.sections import Settings
from pgflowd.core.sleeping_queues import SleepingQueues
from pgflowd.db.doorbells import arm_sleepers, writers
from pgflowd.db.workers import look_at_queues, renew_sleeping
from pgflowd.host.channel import Channel

FULL_S = 0.1  # by then a full channel has room again
AGAIN_S = 1.0  # to the next look at transactions that have missed a doorbell


class Sleepers:
    """The queues of sleeping workers, and who may have missed a doorbell."""

    def __init__(self, settings: Settings, channel: Channel, execute: Callable[..., Any]) -> None:
        self._settings = settings
        self._channel = channel
        self._execute = execute
        self._writers: dict[str, tuple[str, ...] | None] = {}  # that may have missed a doorbell
        self.queues = SleepingQueues()

    def look(self, conn: psycopg.Connection[Any]) -> None:
        """Look at the queues that are due; wake the workers of those that have work."""
        now = time.monotonic()
        asleep = self.queues.take_due(now)
        if not asleep:
            return
        self._execute(conn, renew_sleeping([each.worker_id for each in asleep]))
        self._keep_doorbells(conn, asleep, now)
        for queue, due_in_s in self._execute(conn, look_at_queues([e.queue for e in asleep])):
            is_visible = due_in_s <= 0
            found = Wake(queue) if is_visible else NextDue(queue, time.monotonic() + due_in_s)
            if not self._channel.send(found):
                self.queues.look_by(queue, now + FULL_S)

    def renew(self, conn: psycopg.Connection[Any]) -> None:
        """Renew the rows of all of them."""
        if worker_ids := self.queues.worker_ids:
            self._execute(conn, renew_sleeping(worker_ids))

    def _keep_doorbells(
        self, conn: psycopg.Connection[Any], asleep: list[Asleep], now: float
    ) -> None:
        """Put up those that are gone. Look again while transactions are open that missed one."""
        owners = [
            (each.queue, each.worker_id)
            for each in asleep
            if self._settings.worker_for(each.queue).signal_strategy == "notify"
        ]
        for queue in self._execute(conn, arm_sleepers(owners)):
            self._writers[queue] = None
        for queue in [each.queue for each in asleep if each.queue in self._writers]:
            open_now = self._execute(conn, writers(queue, self._writers.pop(queue)))
            if open_now:
                self._writers[queue] = open_now
                self.queues.look_by(queue, now + AGAIN_S)
