"""
Completes a task on the connection of its handler, so that what the handler wrote there is committed
together with the completion, or not at all.

A handler may leave the session in any state: with another role, encoding, time limit or row
factory, or with something open. So the task is completed through a connection object of our own. A
transaction that wrote nothing is only ended, and the worker reports the task as usual; likewise
where the handler has committed by itself, or has closed the connection.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg.pq import PGconn, PipelineStatus, TransactionStatus

from pgflowd.core.completion import (
    AS_USUAL,
    Head,
    given_back,
    is_busy,
    is_recorded,
    recorded,
    refused,
)
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.task import Task, TaskReport
from pgflowd.db import tasks
from pgflowd.db.connection import connect, is_pooled, reset
from pgflowd.db.query import Query, database_identity, execute, execute_async, only
from pgflowd.errors import DatabaseError, PgflowdError, RunError

if TYPE_CHECKING:
    from psycopg.pq import abc

    from pgflowd.processes.runner.context import RunnerContext


# Keeps the session of `ctx.conn()` for the next task of the runner.
#
# To open one takes the server 2 ms, and the first completion there 25 ms instead of 3, since each
# session plans for itself. So a session that ends in order stays open. Nothing that a handler did
# to it reaches the next one: not its settings, role, prepared statements, cursors, temporary
# tables, locks and channels. Its Python objects are cut off from it. A session in a pooler is
# closed, and one that no task has used for a while (`runner.main.KEPT_S`).
ELSEWHERE = ""  # a database without our schema


class Sessions:
    """At most one session of a runner that no task uses."""

    def __init__(self) -> None:
        self._key = ("", "")  # where it leads, and its name
        self._is_direct = False
        self._used: list[abc.PGconn] = []  # by the last task
        self._clean: list[abc.PGconn] = []

    @property
    def has_kept(self) -> bool:
        return bool(self._clean)

    def close_kept(self) -> None:
        while self._clean:
            self._clean.pop().finish()

    def open(self, conninfo: str, name: str) -> tuple[psycopg.Connection[Any], str]:
        """Return a connection as `psycopg.connect` does, and to which database it leads."""
        if (conn := self._take((conninfo, name))) is not None:
            return conn
        opened = connect(conninfo, name=name, autocommit=False)
        self._key, self._is_direct = (conninfo, name), not is_pooled(opened)
        return opened, _database_of(opened)

    def _take(self, key: tuple[str, str]) -> tuple[psycopg.Connection[Any], str] | None:
        try:
            pgconn = self._clean.pop()  # threads of a handler may ask at once
        except IndexError:
            return None
        conn = psycopg.Connection[Any](pgconn)
        try:
            if key == self._key:
                return conn, _database_of(conn)
        except (psycopg.Error, PgflowdError):
            pass  # the server has ended it
        conn.close()
        return None

    def give_back(self, conn: psycopg.Connection[Any], *, may_keep: bool) -> None:
        """A task has ended: keep its session, or close it unless it has ended in order."""
        pgconn = conn.pgconn
        is_idle = pgconn.transaction_status == TransactionStatus.IDLE
        is_plain = pgconn.pipeline_status == PipelineStatus.OFF
        if may_keep and self._is_direct and is_idle and is_plain and not self._used:
            cut_off(conn)
            self._used.append(pgconn)
        else:
            conn.close()

    def clean(self) -> None:
        """Leave nothing of the last task in its session."""
        while self._used:
            conn = psycopg.Connection[Any](self._used.pop())
            try:
                reset(conn)
                self._clean.append(conn.pgconn)
                cut_off(conn)
            except psycopg.Error:
                conn.close()


def cut_off(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Make an object useless, and leave its session as it is."""
    conn.pgconn = _closed()


@cache
def _closed() -> abc.PGconn:
    closed = PGconn.connect_start(b"host=/nowhere")
    closed.finish()
    return closed


def _database_of(conn: psycopg.Connection[Any]) -> str:
    """Which database a connection leads to; it begins no transaction."""
    conn.autocommit = True
    try:
        return execute(conn, database_identity())
    except DatabaseError:
        if conn.closed:
            raise
        return ELSEWHERE
    finally:
        if not conn.closed:
            conn.autocommit = False


EXTRA_S = 1.0  # beyond the task's timeout, so that its worker ends it first
_CONFLICT = "its outcome could not be committed with what it wrote over ctx.conn(): "
_NO_COMMIT = "what the handler wrote over ctx.conn() cannot be committed: "

Connection = psycopg.Connection[Any]
Steps = Generator[Query[Any] | None, Any, Head]  # None: commit


def report_of(ctx: RunnerContext, body: bytes, cpu_s: float | None, peak_kb: int) -> TaskReport:
    """The report of a task whose handler has returned this output."""
    name = ctx.run_id, ctx.step_slug, ctx.task_index, ctx.token, ctx.attempt, ctx.max_attempts
    task = Task(*name, 0.0, b"", None)
    return TaskReport(task, Outcome.COMPLETED, body, cpu_s=cpu_s, peak_kb=peak_kb)


class Session(NamedTuple):
    """How the handler left the session."""

    role: str
    has_written: bool


def complete(conn: Connection, ctx: RunnerContext, report: TaskReport) -> Head:
    """Complete the task; return the head of `done`. The caller ends the connection."""
    if not has_open_transaction(conn):
        return AS_USUAL
    ours = Connection(conn.pgconn)
    ours.prepare_threshold = None  # the handler's object has used the names
    steps, answer = _complete(ctx, report), None
    try:
        while True:
            query = steps.send(answer)
            try:
                if query is None:
                    ours.commit()
                else:
                    answer = execute(ours, query)
            except psycopg.Error as error:
                steps.throw(error)
    except StopIteration as end:
        return dict(end.value)
    finally:
        cut_off(ours)


async def complete_async(conn: Connection, ctx: RunnerContext, report: TaskReport) -> Head:
    """Do the same without blocking the event loop."""
    if not has_open_transaction(conn):
        return AS_USUAL
    ours = psycopg.AsyncConnection[Any](conn.pgconn)
    ours.prepare_threshold = None
    steps, answer = _complete(ctx, report), None
    try:
        while True:
            query = steps.send(answer)
            try:
                if query is None:
                    await ours.commit()
                else:
                    answer = await execute_async(ours, query)
            except psycopg.Error as error:
                steps.throw(error)
    except StopIteration as end:
        return dict(end.value)
    finally:
        cut_off(ours)


def _complete(ctx: RunnerContext, report: TaskReport) -> Steps:
    """What is executed, one after the other; the value is the head of `done`."""
    try:
        if ctx.is_home:
            session: Session = yield look_at_session(ctx.deadline.timestamp())
            if session.has_written:
                return (yield from _complete_with_work(ctx, report, session.role))
        yield None
        return AS_USUAL
    except psycopg.errors.DeadlockDetected as error:
        return given_back(f"{_CONFLICT}{error}")
    except psycopg.errors.SerializationFailure as error:
        remedy = (
            "let ctx.conn() read committed, or commit there by yourself (docs/guides/handlers.md)"
        )
        raise RunError(f"{_CONFLICT}{error}", code="E431", next=remedy) from error


def _complete_with_work(ctx: RunnerContext, report: TaskReport, role: str) -> Steps:
    if role != NO_ROLE:
        yield set_role(NO_ROLE)
    while True:
        [answer] = yield tasks.report([report])
        if not is_busy(answer) or ctx.cancelled.is_set():
            break
    if not is_recorded(answer):
        return refused(answer)
    changes = ()
    if ctx.wants_changes:
        changes = yield tasks.run_changes([ctx.run_id])
    if role != NO_ROLE:  # triggers that were deferred to the commit expect it
        yield set_role(role)
    ctx.tell_commit()  # if no result follows, it may be committed
    yield None
    return recorded(answer, changes)


def has_open_transaction(conn: Connection) -> bool:
    """Whether there is something to commit; raise E431 if it cannot be."""
    if conn.broken:
        raise _obstacle("the connection was lost", "let the error of ctx.conn() end the handler")
    if conn.closed:
        return False
    status = conn.pgconn.transaction_status
    if conn.pgconn.pipeline_status != PipelineStatus.OFF:
        raise _obstacle("a pipeline is open", "end it before the handler returns")
    if status == TransactionStatus.ACTIVE:
        remedy = "read all results, and end a COPY, before the handler returns"
        raise _obstacle("a statement is under way", remedy)
    if status == TransactionStatus.INERROR:
        remedy = "let the error end the handler, or put what may fail into a transaction() block"
        raise _obstacle("a statement of the transaction has failed", remedy)
    if getattr(conn, "_num_transactions", 0):
        raise _obstacle("a transaction() block is open", "end it first")
    return status == TransactionStatus.INTRANS


def _obstacle(what: str, remedy: str) -> RunError:
    return RunError(f"{_NO_COMMIT}{what}", code="E431", next=remedy)


# queries

NO_ROLE = "none"  # but that of the connection
# `now()` is the handler's first statement, and the task ends now (`pgflowd._moment`)
_SESSION = """
select current_setting('role'),
       pg_current_xact_id_if_assigned() is not null
         and current_setting('transaction_read_only') = 'off',
       set_config('statement_timeout', %s, true), set_config('client_encoding', 'UTF8', true),
       set_config('pgflowd.moment', to_char(
         clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), true)
"""


def look_at_session(ends: float) -> Query[Session]:
    """Read how the session is; let statements take what is left of the task's time."""
    left_s = max(0.0, ends - time.time()) + EXTRA_S
    limit = f"{math.ceil(left_s * 1000)}ms"
    return Query(_SESSION, (limit,), lambda rows: Session(*rows[0][:2]))


def set_role(role: str) -> Query[None]:
    return Query("select set_config('role', %s, true)", (role,), lambda rows: None)


# Saves memos on the connection of their handler, so that what a memo's function wrote there is
# committed together with its result, or not at all.
#
# What the handler itself wrote before, in the same transaction, is committed too. A savepoint marks
# where the memo began, so that a function which fails undoes its own work alone. As in
# `runner.completion`, a connection object of our own does all this, whatever the handler did to
# its.
LOCKED_NAP_S = 0.02  # between two tries while another session has the task

_HAS_WRITTEN = "select pg_current_xact_id_if_assigned() is not null"


class MemoWork:
    """A connection of a handler, as its memos use it."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self._ours = psycopg.Connection[Any](conn.pgconn)
        self._ours.prepare_threshold = None  # the handler's object has used the names

    def end(self) -> None:
        """The task ends; its connection is ended elsewhere."""
        cut_off(self._ours)

    def mark(self) -> bool:
        """Mark where a memo begins, if a transaction is open; return whether that is so."""
        if self._status() != TransactionStatus.INTRANS:
            return False
        self._ours.execute("savepoint pgflowd_memo")
        return True

    def undo(self, *, is_marked: bool) -> None:
        """Undo what the function of a memo did; all, if it has ended the transaction before it."""
        if self._status() == TransactionStatus.IDLE:
            return
        with contextlib.suppress(psycopg.Error):  # it is lost: the server undoes it
            if is_marked:
                with contextlib.suppress(psycopg.errors.InvalidSavepointSpecification):
                    self._ours.execute("rollback to savepoint pgflowd_memo")
                    return
            self._ours.rollback()

    def save(self, save: Query[bool], ends: float, is_cancelled: Callable[[], bool]) -> bool:
        """Save by this query, and commit; return False if nothing was written here."""
        if not self._has_written() or not has_open_transaction(self.conn):
            return False
        session = execute(self._ours, look_at_session(ends))
        if session.role != NO_ROLE:
            execute(self._ours, set_role(NO_ROLE))
        while not execute(self._ours, save):
            if is_cancelled():
                raise RunError("the task is to end, and another session has it", code="E411")
            time.sleep(LOCKED_NAP_S)
        if session.role != NO_ROLE:  # triggers that were deferred to the commit expect it
            execute(self._ours, set_role(session.role))
        self._ours.commit()
        return True

    def _has_written(self) -> bool:
        """Whether the open transaction has; where that cannot be asked, it may have."""
        status = self._status()
        if status != TransactionStatus.INTRANS:
            return status != TransactionStatus.IDLE
        return bool(execute(self._ours, Query(_HAS_WRITTEN, (), only)))

    def _status(self) -> int:
        closed = self.conn.closed
        return TransactionStatus.IDLE if closed else self.conn.pgconn.transaction_status
