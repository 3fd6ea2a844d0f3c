"""
The worker's two lines to the database: one reports and claims, the other beats and fetches.

Every call is a task of the loop, one at a time on each line, and its end, good or bad, becomes
an event. A connection on which a call failed is closed and never used again; a call over its
limit has its socket shut down, since cancelling on a dead line would wait for an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import psycopg

from pgflowd.core.settings.sections import Settings
from pgflowd.core.worker import actions, events, state
from pgflowd.core.worker.state import Task, TaskReport
from pgflowd.db import runs, tasks, workers
from pgflowd.db.connection import connect_async, limits_of
from pgflowd.db.errors import failure_of
from pgflowd.db.query import AsyncConnection, Query, execute_async, execute_together_async
from pgflowd.host.config_refs import read
from pgflowd.processes.worker.output_stream import OutputStream

STRANGERS = "PF010"  # the notice that messages of others were archived
Bring = Callable[[int, int, bytes | None, str | None], None]  # runner, token, body, problem


class DatabaseConnections:
    """Both connections, and the calls on them."""

    def __init__(
        self,
        settings: Settings,
        flow: str,
        worker_id: UUID,
        name: str,
        tell: Callable[[Any], None],
    ) -> None:
        self.standing = workers.Standing("ok")
        self._settings = settings
        self._flow, self._queue = flow, flow.lower()
        self._worker_id, self._name = worker_id, name
        self._lease_s = settings.recovery.lease_s
        self._tell = tell
        self._conns: dict[str, AsyncConnection] = {}
        self._calls: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> None:
        """Connect both; raise what keeps us from it."""
        for line in (state.MAIN, state.LEASES):
            self._conns[line] = await self._open()

    def connect(self, line: str) -> None:
        self._start(line, self._connect(line))

    def turn(self, action: actions.ReportAndClaim) -> None:
        self._start(state.MAIN, self._turn(action))

    def ask_due(self) -> None:
        self._start(state.MAIN, self._ask_due())

    def beat(self, action: actions.RenewLeases) -> None:
        self._start(state.LEASES, self._beat(action))

    def fetch(self, action: actions.Fetch, task: Task | None, bring: Bring) -> None:
        self._start(state.LEASES, self._fetch(action, task, bring))

    def tell(self, audience: OutputStream) -> None:
        self._start(state.LEASES, self._tell_all(audience))

    def goodbye(self) -> None:
        self._start(state.LEASES, self._goodbye())

    def cut(self, line: str) -> None:
        """End a call that takes too long."""
        conn = self._conns.get(line)
        if conn is None:
            self._calls[line].cancel()
            return
        with (
            contextlib.suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(conn.fileno())) as copy,
        ):
            copy.shutdown(socket.SHUT_RDWR)

    async def _open(self) -> AsyncConnection:
        database = self._settings.database
        conn = await connect_async(
            read(database.url),
            name=self._name,
            limits=limits_of(database),
            pooled=bool(database.listen_url),
        )
        conn.add_notice_handler(self._noticed)
        return conn

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == STRANGERS:
            self._tell(events.ForeignMessages(int(notice.message_detail or 0)))

    def _start(self, line: str, call: Coroutine[Any, Any, Any]) -> None:
        self._calls[line] = asyncio.get_running_loop().create_task(self._perform(line, call))

    async def _perform(self, line: str, call: Coroutine[Any, Any, Any]) -> None:
        try:
            event = await call
        except (Exception, asyncio.CancelledError) as error:
            conn = self._conns.pop(line, None)
            if conn is not None:
                with contextlib.suppress(Exception):
                    await conn.close()
            meaning, text = failure_of(error)
            event = events.ConnectionLost(line, meaning, text, random.random())
        self._tell(event)

    async def _connect(self, line: str) -> events.Connected:
        self._conns[line] = await self._open()
        return events.Connected(line)

    async def _turn(self, action: actions.ReportAndClaim) -> events.ReportAndClaimDone:
        conn = self._conns[state.MAIN]
        calls: list[Query[Any]] = []
        if action.reports:
            calls.append(tasks.report([_said(each) for each in action.reports]))
        if action.about:
            calls.append(tasks.news(action.about))
        if action.wanted:
            calls.append(tasks.claim(self._flow, self._worker_id, action.wanted, self._lease_s))
        answers = await execute_together_async(conn, calls)
        taken = answers.pop() if action.wanted else []
        news = answers.pop() if action.about else []
        return _turned(answers.pop() if action.reports else [], taken, news)

    async def _ask_due(self) -> events.NextDue:
        return events.NextDue(
            *await execute_async(self._conns[state.MAIN], workers.next_due(self._queue))
        )

    async def _beat(self, action: actions.RenewLeases) -> events.LeasesRenewed:
        conn = self._conns[state.LEASES]
        calls: list[Query[Any]] = [workers.beat(self._worker_id, self._queue)]
        if action.tokens:
            calls.append(tasks.heartbeat(self._worker_id, action.tokens, self._lease_s))
        if action.about:
            calls.append(tasks.completed_by(self._worker_id, action.about))
        answers = await execute_together_async(conn, calls)
        completed = answers.pop() if action.about else 0
        verdicts: list[tasks.LeaseVerdict] = answers.pop() if action.tokens else []
        row = self.standing = answers.pop()
        ended = [each.token for each in verdicts if each.verdict == "cancel"]
        why = await execute_async(conn, tasks.cancellations(ended)) if ended else []
        return events.LeasesRenewed(
            tuple((each.token, each.verdict) for each in verdicts),
            row.state,
            row.due_in_s,
            row.queued,
            tuple(events.RunCancelled(str(each.run_id), each.by, each.reason) for each in why),
            completed,
        )

    async def _fetch(
        self, action: actions.Fetch, task: Task | None, bring: Bring
    ) -> events.Fetched:
        """Bring it, or why there is none: what another try may bring is asked for again."""
        problem = body = None
        try:
            if action.what == "conn":
                body = self._where()
            elif task is not None:
                body = await execute_async(self._conns[state.LEASES], _wanted(action, task))
        except Exception as error:
            meaning, problem = failure_of(error)
            if meaning == "again" or self._conns[state.LEASES].closed:
                raise
        bring(action.id, action.token, body, problem)
        return events.Fetched()

    async def _tell_all(self, audience: OutputStream) -> events.OutputPublished:
        """Tell followers. That the server refuses it must not cost us the line that beats."""
        conn = self._conns[state.LEASES]
        try:
            if told := audience.take():
                await execute_async(conn, runs.publish_output(told))
            audience.was_told()
        except Exception:
            if conn.closed:
                raise
            audience.was_refused()
        return events.OutputPublished()

    def _where(self) -> bytes:
        """Where and as whom a handler connects."""
        where = {"conninfo": read(self._settings.database.url), "name": f"{self._name} handler"}
        return json.dumps(where).encode()

    async def _goodbye(self) -> events.SignedOff:
        await execute_async(self._conns[state.LEASES], workers.stopped(self._worker_id))
        return events.SignedOff()


def _wanted(action: actions.Fetch, task: Task) -> Query[bytes | None]:
    if action.what == "input":
        return workers.run_input(task.run_id)
    return workers.step_output(task.run_id, action.step)


def _said(report: TaskReport) -> tasks.ReportRow:
    task = report.task
    return tasks.ReportRow(
        task.run_id,
        task.step,
        task.task_index,
        task.token,
        report.outcome,
        report.output,
        **report.fields,
    )


def _turned(
    answers: list[tasks.AnswerRow], taken: list[Task], news: list[tasks.RunChangeRow]
) -> events.ReportAndClaimDone:
    return events.ReportAndClaimDone(
        tuple(events.ReportAnswer(each.verdict, each.sqlstate, each.message) for each in answers),
        tuple(taken),
        random.random(),
        tuple(
            events.RunChange(str(each.run_id), each.step_slug, each.status, each.took_s, each.error)
            for each in news
        ),
    )
