"""
The worker's start: its zygote imports the flow, the database is checked, its row is inserted.

The zygote is forked while this process has one thread and no connection. The rest talks to the
database in a helper thread, so that an order to stop is obeyed at once even while the database
does not answer; nothing is forked any more by then. A failure that a repetition cannot mend is
CannotStart; any other is tried again after growing waits, and the supervisor is informed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import select
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from pgflowd.core.backoff import reconnect_delay_s
from pgflowd.core.definition.options import PATTERNS
from pgflowd.core.definition.shape import Code, HandlerFacts, Shape, facts_from, with_run
from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.messages import (
    ConnectionRefused,
    Drain,
    Failed,
    Heartbeat,
    Message,
    QuickStop,
    Waiting,
)
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.tree import ServedFlow
from pgflowd.core.worker.state import WorkerOptions
from pgflowd.db import definitions, schema, workers
from pgflowd.db.connection import connect, failure_of, is_refused, limits_of
from pgflowd.errors import Problem, Unreachable
from pgflowd.host.channel import Channel
from pgflowd.host.config import read
from pgflowd.host.error_trackers import is_of_sdk
from pgflowd.host.fork import count_streams
from pgflowd.host.logs import Log
from pgflowd.processes.flow_loading import secret_variables
from pgflowd.processes.runner.main import ZygoteOptions
from pgflowd.processes.worker.database import DatabaseConnections
from pgflowd.processes.worker.runner_socket import end_of
from pgflowd.processes.zygote.main import Zygote, fork_zygote
from pgflowd.processes.zygote.main import main as zygote_main

CALL_EXTRA_S = 2.0  # our own limit of a call, beyond statement_timeout
_HOPELESS = (DatabaseFailure.BROKEN, DatabaseFailure.SCHEMA, DatabaseFailure.GONE)


class StoppedAtStart(Exception):
    """It was ordered to stop, or the supervisor ended, during the start."""


class CannotStart(Exception):
    """A failure that a repetition cannot mend."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.failed = Failed(code, text)


@dataclass(frozen=True)
class LoadedFlow:
    """A zygote that is ready, and the definition of its flow."""

    zygote: Zygote
    shape: Shape
    with_run: frozenset[str]  # later steps whose handlers take the run's input
    warnings: tuple[Problem, ...] = ()
    import_s: float = 0.0  # from the fork of the zygote to its first answer
    async_steps: frozenset[str] = frozenset()
    handlers: tuple[HandlerFacts, ...] = ()
    originals: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what undo steps take
    lifespan: str | None = None  # the name of its function


class Registration(NamedTuple):
    """What the database has of flow and queue, and the connection to it."""

    connection: psycopg.Connection[Any]
    has_notifications: bool  # whether an insert into the queue wakes the worker
    warnings: tuple[Problem, ...]
    changes: tuple[str, ...]  # of options, to those of the code
    version: tuple[Shape, int] | None  # that is served, if not as the code has it
    followed: Sequence[str]  # runs whose followers want what handlers print


def load_flow_in_zygote(channel: Channel, settings: Settings, served: ServedFlow) -> LoadedFlow:
    """Fork the zygote and let it import the flow. Raises CannotStart, StoppedAtStart."""
    worker = settings.worker_for(served.name)
    options = ZygoteOptions(
        served,
        settings.pgflowd.python_path,
        secret_variables(settings),
        worker.max_output_bytes,
        worker.oom_score_adj,
        settings.pgflowd.name,
        settings.logging.level == "debug",
        dict(settings.logging.levels),
        is_shared=worker.tasks_per_runner > 1,
        is_captured=worker.handler_output == "capture",
        caps=frozenset(worker.caps),
        service=settings.service_name if settings.telemetry.is_on else None,
        sentry=settings.telemetry.sentry,
    )
    began = time.monotonic()
    zygote = _fork(options)
    answer = _first_answer(zygote, channel, served)
    import_s = round(time.monotonic() - began, 3)
    if answer["say"] == "failed":
        _kill(zygote)
        raise CannotStart(answer["code"], answer["text"])
    if not all(map(is_of_sdk, answer["threads"])):
        _kill(zygote)
        zygote = _fork(replace(options, imports=False))
    warnings = tuple(_warnings(answer, served.module))
    async_steps = frozenset(answer["async"])
    with_run = frozenset(answer["with_run"])
    handlers = tuple(facts_from(answer["handlers"]))
    return LoadedFlow(
        zygote, answer["shape"], with_run, warnings, import_s, async_steps, handlers,
        answer["originals"], answer["lifespan"],
    )  # fmt: skip


def _warnings(answer: dict[str, Any], module: str) -> Iterator[Problem]:
    for code, text, place in answer["warnings"]:
        yield Problem(code, text, place)
    if answer["threads"] and all(map(is_of_sdk, answer["threads"])):
        names = ", ".join(answer["threads"])
        text = f"importing {module} started threads of an SDK ({names}), which forks do not copy"
        remedy = "initialise it without: no BatchSpanProcessor; leave the provider to pgflowd"
        yield Problem("W222", text, next=remedy)
    elif answer["threads"]:
        names = ", ".join(answer["threads"])
        text = f"importing {module} started threads ({names}), so each runner imports it by itself"
        yield Problem("W222", text)
    elif answer["streams"]:
        open_ = count_streams(answer["streams"])
        yield Problem("W222", f"importing {module} left {open_} open, which all runners share")


def _fork(options: ZygoteOptions) -> Zygote:
    main = partial(zygote_main, options=options)
    return fork_zygote(main, f"{options.name}: zygote {options.served.slug}")


def _first_answer(zygote: Zygote, channel: Channel, served: ServedFlow) -> dict[str, Any]:
    """Wait for the definition; an order to stop goes first."""
    while True:
        sources: list[Any] = [zygote.socket, zygote.pidfd, channel]
        ready, _, _ = select.select(sources, [], [])
        if zygote.socket in ready and (answer := zygote.socket.receive()):
            return answer.message
        if zygote.pidfd in ready:
            end = end_of(_kill(zygote))
            text = f"importing {served.module} ended its process: {end}"
            raise CannotStart("E210", text)
        if channel in ready:
            orders = channel.receive()
            if channel.at_end or any(isinstance(each, Drain | QuickStop) for each in orders):
                _kill(zygote)
                raise StoppedAtStart


def _kill(zygote: Zygote) -> int:
    """Kill and reap a zygote that is not needed; return its status."""
    if not select.select([zygote.pidfd], [], [], 0)[0]:
        os.kill(zygote.pid, signal.SIGKILL)
    status = os.waitpid(zygote.pid, 0)[1]
    zygote.socket.close()
    os.close(zygote.pidfd)
    return status


def register(
    settings: Settings, served: ServedFlow, loaded: LoadedFlow, worker_id: UUID, title: str
) -> Registration:
    """Check schema and definition, and insert the worker's row. Raises errors of the database."""
    worker, mode = settings.worker_for(served.name), settings.pgflowd.definitions
    name = worker.worker_name or f"{settings.pgflowd.name}:{served.slug}"
    database = settings.database
    url, is_pooled = read(database.url), bool(database.listen_url)
    conn = connect(url, name=title, limits=limits_of(database), pooled=is_pooled)
    try:
        schema.require(conn)
        code = Code(served.name, loaded.shape, loaded.handlers)
        warnings, changes = definitions.define(conn, code, mode)
        version = definitions.version_to_serve(conn, code, served.slug)
        has_notifications = workers.watch(conn, served.queue, may_write=mode != "verify")
        workers.insert_row(conn, worker_id, served.queue, name, worker.caps)
        followed = workers.wanted_output(conn)
    except BaseException:
        conn.close()
        raise
    if not has_notifications and worker.signal_strategy == "notify":
        text = f"queue {served.queue} has no trigger of ours: polling instead of notifications"
        remedy = f"run `pgflowd flows deploy {served.name}` as the owner"
        warnings.append(Problem("W311", text, "database", remedy))
    return Registration(conn, has_notifications, tuple(warnings), tuple(changes), version, followed)


class RegistrationSession:
    """The part of a worker's start that needs the database."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        served: ServedFlow,
        loaded: LoadedFlow,
        worker_id: UUID,
        title: str,
    ) -> None:
        self._settings, self._log = settings, log
        self._served, self.loaded, self._worker_id = served, loaded, worker_id
        self._title = title  # of the process, and so of its connections
        self.warnings: tuple[Problem, ...] = ()
        self.followed: Sequence[str] = ()  # runs whose followers were there before this worker
        self._stop = asyncio.Event()
        database = settings.database
        # less than hang_timeout
        self._limit_s = database.connect_timeout_s + database.statement_timeout_s

    def stop(self) -> None:
        """End the start, if it still goes on."""
        self._stop.set()

    async def register(
        self, connections: DatabaseConnections, send: Callable[[Message], None]
    ) -> WorkerOptions:
        """Return the options of the worker's engine. Raises CannotStart, StoppedAtStart."""
        database, attempts = self._settings.database, 0
        helper = ThreadPoolExecutor(1)  # never waited for: the database may never answer
        while True:
            try:
                registration = await self._unless_stopped(self._try(helper, connections))
                self.warnings = (*self.loaded.warnings, *registration.warnings)
                self.followed = registration.followed
                if registration.version:
                    self._serve_version(*registration.version)
                for change in registration.changes:
                    self._log.info("flow.changed", text=change)
                return self._options(registration.has_notifications)
            except (StoppedAtStart, CannotStart):
                raise
            except Exception as error:
                failure, text = failure_of(error)
                if is_refused(error):
                    send(ConnectionRefused())
                if failure in _HOPELESS and not isinstance(error, Unreachable):
                    raise CannotStart(getattr(error, "code", "E301"), text) from error
            attempts += 1
            if attempts == 1:
                send(Waiting("database"))
                self._log.warning("worker.error", error=text)
            send(Heartbeat())
            min_s, max_s = database.reconnect_min_s, database.reconnect_max_s
            pause_s = reconnect_delay_s(attempts, min_s, max_s, random.random())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause_s)
            if self._stop.is_set():
                raise StoppedAtStart
            send(Heartbeat())

    def _serve_version(self, shape: Shape, version: int) -> None:
        """Let runners execute the steps of a version that is not as the code has them."""
        loaded = self.loaded
        self.loaded = replace(
            loaded,
            shape=shape,
            with_run=with_run(shape, loaded.handlers, version),
            async_steps=frozenset(),  # a retired handler may be another one, and take other parts
            originals={},
        )
        request = {"do": "serve_version", "shape": shape, "version": version}
        loaded.zygote.socket.send_long(request)

    async def _try(
        self, helper: ThreadPoolExecutor, connections: DatabaseConnections
    ) -> Registration:
        loop = asyncio.get_running_loop()
        arguments = (self._served, self.loaded, self._worker_id, self._title)
        async with asyncio.timeout(self._limit_s):
            registration = await loop.run_in_executor(helper, register, self._settings, *arguments)
            await connections.adopt(registration.connection)
        return registration

    async def _unless_stopped(self, trying: Coroutine[Any, Any, Registration]) -> Registration:
        loop = asyncio.get_running_loop()
        registering, stopping = loop.create_task(trying), loop.create_task(self._stop.wait())
        await asyncio.wait({registering, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._stop.is_set():
            registering.cancel()
            registering.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise StoppedAtStart
        return await registering

    def _options(self, has_notifications: bool) -> WorkerOptions:
        worker, database = self._settings.worker_for(self._served.name), self._settings.database
        steps = self.loaded.shape["steps"]
        return WorkerOptions(
            **vars(worker),
            database=database,
            is_polling=worker.signal_strategy == "polling" or not has_notifications,
            shared_steps=self.loaded.async_steps if worker.tasks_per_runner > 1 else frozenset(),
            call_limit_s=database.statement_timeout_s + CALL_EXTRA_S,
            steps=frozenset(each["slug"] for each in steps),
            roots=frozenset(each["slug"] for each in steps if not each["dependencies"]),
            has_conditions=any(each[p.json_name]["defined"] for each in steps for p in PATTERNS),
            may_log_payloads=self._settings.logging.payloads,
            is_debug=self._settings.logging.level == "debug",
            lifespan=self.loaded.lifespan,
            start_timeout_s=self._settings.supervisor.start_timeout_s,
        )
