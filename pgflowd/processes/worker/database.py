"""
The worker's connections to the database, one or two, and the calls on them.

Every call is a task of the event loop, one at a time on each connection, and its end, good or bad,
becomes an event. A connection on which a call failed is closed and never used again; a call over
its limit has its socket shut down, since cancelling on a dead connection waits for an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg

from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.tree import ServedFlow
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.doorbell import DoorbellCall
from pgflowd.core.worker.state import ConnectionName, HandlerRequest
from pgflowd.core.worker.task import Task
from pgflowd.db import runs, tasks, waits, workers
from pgflowd.db.connection import (
    as_async,
    connect_async,
    failure_of,
    is_refused,
    limits_of,
    sqlstate_of,
)
from pgflowd.db.query import (
    AsyncConnection,
    Query,
    database_identity,
    execute_async,
    execute_together_async,
)
from pgflowd.errors import NotFound, PgflowdError, UnknownFlow
from pgflowd.host.config import read
from pgflowd.processes.worker.metrics import WorkerMetrics
from pgflowd.processes.worker.runner_records import OutputStream
from pgflowd.processes.worker.runner_socket import Refusal

FOREIGN_MESSAGES = "PF010"  # the notice that messages of others were archived
NOT_STARTED = "PF012"  # the notice that a task could not be started, and has failed
MAIN = ConnectionName.MAIN
SendAnswer = Callable[[int, int, bytes | None, Refusal | None], None]  # runner, token, body


class DatabaseConnections:
    """The connections, and the calls on them."""

    def __init__(
        self,
        settings: Settings,
        served: ServedFlow,
        worker_id: UUID,
        name: str,
        emit: Callable[[events.WorkerEvent], None],
        on_refused: Callable[[], None],  # the server has no free connection
    ) -> None:
        self.claimed_at: float | None = None  # when a claim last brought a task; monotonic
        self._settings = settings
        self._flow, self._queue = served.slug, served.queue
        self.with_run: list[str] = []  # the later steps whose handlers take the run's input
        self.originals: Mapping[str, Sequence[str]] = {}  # of undo steps: what their handlers take
        self._caps = settings.worker_for(served.name).caps
        telemetry = settings.telemetry
        self._ratio = telemetry.ratio if telemetry.is_on else None
        self._worker_id, self._name = worker_id, name
        self._lease_s = settings.recovery.lease_s
        self._emit, self._on_refused = emit, on_refused
        self._database: str | None = None  # its identity
        self._connections: dict[ConnectionName, AsyncConnection] = {}
        self._registered: psycopg.Connection[Any] | None = None  # the main one, as it was opened
        self._calls: dict[ConnectionName, asyncio.Task[None]] = {}

    async def adopt(self, registered: psycopg.Connection[Any]) -> None:
        """Go on with the connection on which the worker has registered."""
        self._registered = registered
        self._keep(MAIN, await as_async(registered))

    def close(self, action: actions.CloseConnection) -> None:
        """Close a connection that nothing wants any more."""
        conn = self._connections.pop(action.connection)
        conn.pgconn.finish()

    def cut(self, action: actions.CutConnection) -> None:
        """End a call that takes too long."""
        conn = self._connections.get(action.connection)
        if conn is None:
            self._calls[action.connection].cancel()
            return
        with (
            contextlib.suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(conn.fileno())) as copy,
        ):
            copy.shutdown(socket.SHUT_RDWR)

    def start(self, name: ConnectionName, call: Coroutine[Any, Any, events.WorkerEvent]) -> None:
        """Start one of the calls below."""
        self._calls[name] = asyncio.get_running_loop().create_task(self._perform(name, call))

    async def _perform(
        self, name: ConnectionName, call: Coroutine[Any, Any, events.WorkerEvent]
    ) -> None:
        try:
            event = await call
        except (Exception, asyncio.CancelledError) as error:
            conn = self._connections.pop(name, None)
            if conn is not None:
                with contextlib.suppress(Exception):
                    await conn.close()
            if is_refused(error):
                self._on_refused()
            failure, text = failure_of(error)
            state = sqlstate_of(error)
            event = events.ConnectionLost(name, failure, text, random.random(), state)
        self._emit(event)

    async def connect(self, name: ConnectionName) -> events.Connected:
        database = self._settings.database
        conn = await connect_async(
            read(database.url),
            name=self._name,
            limits=limits_of(database),
            pooled=bool(database.listen_url),
        )
        self._keep(name, conn)
        return events.Connected(name)

    def _keep(self, name: ConnectionName, conn: AsyncConnection) -> None:
        self._connections[name] = conn
        self._database = None  # the URL may lead elsewhere now
        conn.add_notice_handler(self._on_notice)

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == FOREIGN_MESSAGES:
            self._emit(events.ForeignMessagesArchived(int(notice.message_detail or 0)))
        elif notice.sqlstate == NOT_STARTED:
            self._emit(tasks.not_started(notice.message_detail or "{}"))

    async def report_and_claim(self, action: actions.ReportAndClaim) -> events.ReportAndClaimDone:
        calls: list[Query[Any]] = []
        if action.reports:
            calls.append(tasks.report(action.reports))
        if action.kept:
            calls.append(tasks.keep_last(self._worker_id, action.kept))
        if action.changes_of:
            calls.append(tasks.run_changes(action.changes_of))
        if bell := self._doorbell(action):
            calls.append(bell)
        if action.claim:
            whose, lease_s = (self._flow, self._worker_id), self._lease_s
            with_run, caps, ratio = self.with_run, self._caps, self._ratio
            calls.append(tasks.claim(*whose, action.claim, lease_s, with_run, caps, ratio))
        results = await execute_together_async(self._connections[MAIN], calls)
        claimed = results.pop() if action.claim else ()
        if claimed:
            self.claimed_at = time.monotonic()
            claimed = await self._with_originals(claimed)
        of_bell: Any = results.pop() if bell else None
        changes = results.pop() if action.changes_of else ()
        if action.kept:
            results.pop()
        answers = results.pop() if action.reports else ()
        return events.ReportAndClaimDone(
            tuple(answers),
            tuple(claimed),
            tuple(changes),
            random.random(),
            is_armed_anew=of_bell is True,
            writers=of_bell if action.doorbell is DoorbellCall.LIST_WRITERS else (),
        )

    async def _with_originals(self, claimed: Sequence[Task]) -> Sequence[Task]:
        """Read at once what claimed undo tasks undo. Those without it ask for it by themselves."""
        undoing = [task for task in claimed if task.step in self.originals]
        if not undoing:
            return claimed
        query = workers.read_originals([task.key for task in undoing], self.originals)
        try:
            found = await execute_async(self._connections[MAIN], query)
        except Exception:  # the claim is committed; the next call meets a lost connection
            return claimed
        return [task._replace(original=found.get(task.key)) for task in claimed]

    def _doorbell(self, action: actions.ReportAndClaim) -> Query[Any] | None:
        """What this turn does with the doorbell, before its claim."""
        if action.doorbell is DoorbellCall.ARM:
            return waits.arm(self._queue, self._worker_id)
        if action.doorbell is DoorbellCall.DISARM:
            return waits.disarm(self._queue, self._worker_id)
        if action.doorbell is DoorbellCall.LIST_WRITERS:
            return waits.writers(self._queue, action.writers)
        return None

    async def read_next_due(self) -> events.NextDueRead:
        next_due = workers.next_due(self._queue)
        return events.NextDueRead(*await execute_async(self._connections[MAIN], next_due))

    async def renew_leases(
        self, action: actions.RenewLeases, output: OutputStream
    ) -> events.LeasesRenewed:
        conn = self._connections[action.connection]
        calls: list[Query[Any]] = [workers.renew_row(self._worker_id, self._queue)]
        if action.tokens:
            calls.append(tasks.heartbeat(self._worker_id, action.tokens, self._lease_s))
        standing, *rest = await execute_together_async(conn, calls)
        for run_id in standing.followed:
            output.follow(run_id)
        verdicts = rest[0] if rest else []
        ended = [token for token, verdict in verdicts if verdict is events.LeaseVerdict.CANCEL]
        cancelled = await execute_async(conn, tasks.cancellations(ended)) if ended else []
        return events.LeasesRenewed(action.connection, tuple(verdicts), standing, tuple(cancelled))

    async def fetch(
        self, action: actions.Fetch, task: Task | None, answer: SendAnswer
    ) -> events.Fetched:
        """Answer a handler, if only with what is wrong; raise what another try may mend."""
        body: bytes | None = None
        refusal = None
        request, conn = action.request, self._connections[action.connection]
        try:
            if request.kind is HandlerRequest.CONNECTION:
                body = await self._way_in(conn)
            elif task is None:
                refusal = Refusal("the task has ended")
            elif query := workers.reading(request, task):
                body = await execute_async(conn, query)
            else:
                change = workers.changing(request, task, self._lease_s)
                done = await execute_async(conn, change)
                if not done:
                    return events.Fetched(action.connection, is_locked=True)
                body = done if isinstance(done, bytes) else None
        except Exception as error:
            failure, text = failure_of(error)
            if failure is DatabaseFailure.RETRY or conn.closed:
                raise
            if request.kind is HandlerRequest.START and type(error) is NotFound:
                error = UnknownFlow(error.text, next="`pgflowd flows deploy` creates it")
            refusal = Refusal(text)
            if isinstance(error, PgflowdError):
                refusal = Refusal(error.text, error.code, error.next)
        answer(request.runner_id, request.token, body, refusal)
        return events.Fetched(action.connection)

    async def _way_in(self, conn: AsyncConnection) -> bytes:
        """What `ctx.conn()` needs."""
        if self._database is None:
            self._database = await execute_async(conn, database_identity())
        way_in = {
            "conninfo": read(self._settings.database.url),
            "name": f"{self._name} handler",
            "database": self._database,
            "lease_s": self._lease_s,
        }
        return json.dumps(way_in).encode()

    async def publish(
        self, action: actions.PublishOutput, output: OutputStream
    ) -> events.SideCallDone:
        """Publish output. A refusal by the server must not cost the connection."""
        conn = self._connections[action.connection]
        try:
            if payloads := output.followed.take():
                await execute_async(conn, runs.publish_output(payloads))
            if output.followed.is_waiting:  # go on with what has come meanwhile
                output.request_publishing()
        except Exception:
            if conn.closed:
                raise
            output.followed.forget()  # followers will ask again
        return events.SideCallDone(action.connection)

    async def write_progress(self, action: actions.WriteProgress) -> events.ProgressWritten:
        """Write what handlers have told."""
        conn = self._connections[action.connection]
        stored: tuple[int, ...] = ()
        with _unless_closed(conn):
            query = tasks.write_progress(self._worker_id, action.values)
            stored = await execute_async(conn, query)
        return events.ProgressWritten(action.connection, stored)

    async def add_minute(
        self, action: actions.SideAction, metrics: WorkerMetrics
    ) -> events.SideCallDone:
        """Add to the statistics."""
        conn = self._connections[action.connection]
        steps, counters = metrics.minute()
        with _unless_closed(conn):
            if steps:
                await execute_async(conn, workers.add_minute(self._flow, steps))
            metrics.added(counters)
        return events.SideCallDone(action.connection)

    async def sign_off(self, action: actions.SignOff, metrics: WorkerMetrics) -> events.SignedOff:
        await self.add_minute(action, metrics)
        conn = self._connections[action.connection]
        stop = workers.mark_stopped(self._worker_id, keeps_doorbell=action.keeps_doorbell)
        await execute_async(conn, stop)
        return events.SignedOff(action.connection)


@contextlib.contextmanager
def _unless_closed(conn: AsyncConnection) -> Iterator[None]:
    """Let a refusal by the server not cost the connection."""
    try:
        yield
    except Exception:
        if conn.closed:
            raise
