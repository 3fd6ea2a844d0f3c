"""
The worker's entrance: it waits for the database, which then learns of flow and worker.

The look at the database is plain code in a helper thread, so that an order to stop is obeyed at
once, even while nobody answers. What no repetition mends is CannotStart; anything else is tried
again after growing waits, and the supervisor is told that we wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

from pgflowd.core.backoff import reconnect_delay_s
from pgflowd.core.messages import Heartbeat, Message, Waiting
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.served_flow import ServedFlow
from pgflowd.core.worker.state import WorkerOptions
from pgflowd.db.errors import failure_of
from pgflowd.errors import Problem, Unreachable
from pgflowd.host.logs import Log
from pgflowd.processes.worker.database import DatabaseConnections
from pgflowd.processes.worker.startup import (
    CannotStart,
    LoadedFlow,
    Registration,
    StoppedAtStart,
    register,
)

CALL_EXTRA_S = 2.0  # our own limit of a call, beyond statement_timeout


class RegistrationSession:
    """Steps two to four of a worker's start."""

    def __init__(
        self, settings: Settings, log: Log, served: ServedFlow, hatched: LoadedFlow, worker_id: UUID
    ) -> None:
        self._settings, self._log = settings, log
        self._served, self._hatched, self._worker_id = served, hatched, worker_id
        self.warnings: tuple[Problem, ...] = ()
        self._stop = asyncio.Event()
        database = settings.database
        self._limit_s = database.connect_timeout_s + database.statement_timeout_s  # < hang_timeout

    def stop(self) -> None:
        """End the waiting, if there is any."""
        self._stop.set()

    async def pass_through(
        self, lines: DatabaseConnections, send: Callable[[Message], None]
    ) -> WorkerOptions:
        """Return what the worker is to decide by. Raises CannotStart, Stopped."""
        database, attempts = self._settings.database, 0
        helper = ThreadPoolExecutor(1)  # never waited for: it may hang with the database
        while True:
            try:
                entered = await self._unless_stopped(self._try(helper, lines))
                self.warnings = (*self._hatched.warnings, *entered.warnings)
                return self._knobs(entered.is_watched)
            except (StoppedAtStart, CannotStart):
                raise
            except Exception as error:
                meaning, text = failure_of(error)
                if meaning in ("fault", "core", "gone") and not isinstance(error, Unreachable):
                    raise CannotStart(getattr(error, "code", "E301"), text) from error
            attempts += 1
            if attempts == 1:
                send(Waiting("database"))
                self._log.warning("worker.error", error=text)
            send(Heartbeat())  # we wait, and live
            least_s, most_s = database.reconnect_min_s, database.reconnect_max_s
            await self._nap(reconnect_delay_s(attempts, least_s, most_s, random.random()))
            send(Heartbeat())

    async def _try(self, helper: ThreadPoolExecutor, lines: DatabaseConnections) -> Registration:
        loop = asyncio.get_running_loop()
        arguments = (self._served, self._hatched.shape, self._worker_id)
        async with asyncio.timeout(self._limit_s):
            entered = await loop.run_in_executor(helper, register, self._settings, *arguments)
            await lines.open()
        return entered

    async def _unless_stopped(self, trying: Coroutine[Any, Any, Registration]) -> Registration:
        loop = asyncio.get_running_loop()
        entering, stopping = loop.create_task(trying), loop.create_task(self._stop.wait())
        await asyncio.wait({entering, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._stop.is_set():
            entering.cancel()
            entering.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise StoppedAtStart  # and whatever came of it, nobody asks
        return await entering

    async def _nap(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)
        if self._stop.is_set():
            raise StoppedAtStart

    def _knobs(self, is_watched: bool) -> WorkerOptions:
        worker, database = self._settings.worker_for(self._served.slug), self._settings.database
        return WorkerOptions(
            max_concurrency=worker.max_concurrency,
            batch_size=worker.batch_size,
            polls=worker.signal_strategy == "polling" or not is_watched,
            notify_fallback_s=worker.notify_fallback_s,
            poll_min_s=worker.poll_min_s,
            poll_max_s=worker.poll_max_s,
            heartbeat_interval_s=worker.heartbeat_interval_s,
            reuses=worker.isolation == "reuse",
            max_tasks_per_runner=worker.max_tasks_per_runner,
            runner_idle_s=worker.runner_idle_s,
            kill_grace_s=worker.kill_grace_s,
            backoff_min_s=worker.backoff_min_s,
            backoff_max_s=worker.backoff_max_s,
            reconnect_min_s=database.reconnect_min_s,
            reconnect_max_s=database.reconnect_max_s,
            call_limit_s=database.statement_timeout_s + CALL_EXTRA_S,
            steps=self._hatched.steps,
            roots=self._hatched.roots,
            ends=self._hatched.ends,
            is_job=self._hatched.is_job,
            has_conditions=self._hatched.has_conditions,
            payloads=self._settings.logging.payloads,
            tells_all=self._settings.logging.level == "debug",
        )
