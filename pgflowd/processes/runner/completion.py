"""
Completes a task on the connection of its handler, so that what the handler wrote there is committed
together with the completion, or not at all.

A handler may leave the session in any state: with another role, encoding, time limit or row
factory, or with something open. So the task is completed through a connection object of our own. A
transaction that wrote nothing is only ended, and the worker reports the task as usual; likewise
where the handler has committed by itself, or has closed the connection.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

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
from pgflowd.db.query import Query, execute, execute_async
from pgflowd.errors import RunError
from pgflowd.processes.runner.sessions import cut_off

if TYPE_CHECKING:
    from pgflowd.processes.runner.context import RunnerContext

EXTRA_S = 1.0  # beyond the task's timeout, so that its worker ends it first
_CONFLICT = "its outcome could not be committed with what it wrote over ctx.conn(): "
_NO_COMMIT = "what the handler wrote over ctx.conn() cannot be committed: "

Connection = psycopg.Connection[Any]
Steps = Generator[Query[Any] | None, Any, Head]  # None: commit


@dataclass(frozen=True)
class Completion:
    """A task whose handler has returned, and what is needed to complete it."""

    report: TaskReport
    ends: float  # when the task times out, as time.time() counts
    is_cancelled: Callable[[], bool]
    wants_changes: bool  # of its run, for the log
    is_home: bool  # whether the connection leads to the worker's database
    tell_commit: Callable[[], None]  # the worker; if no result follows, it may be committed


def completion_of(
    ctx: RunnerContext, body: bytes, wants_changes: bool, cpu_s: float | None, peak_kb: int
) -> Completion:
    """What is needed to complete the task of `ctx` with this output."""
    task = Task(
        ctx.run_id,
        ctx.step_slug,
        ctx.task_index,
        ctx.token,
        ctx.attempt,
        ctx.max_attempts,
        0.0,
        b"",
        None,
    )
    return Completion(
        TaskReport(task, Outcome.COMPLETED, body, cpu_s=cpu_s, peak_kb=peak_kb),
        ctx.deadline.timestamp(),
        ctx.cancelled.is_set,
        wants_changes,
        ctx.is_home,
        ctx.tell_commit,
    )


class Session(NamedTuple):
    """How the handler left the session."""

    role: str
    has_written: bool


def complete(conn: Connection, completion: Completion) -> Head:
    """Complete the task; return the head of `done`. The caller ends the connection."""
    if not has_open_transaction(conn):
        return AS_USUAL
    ours = Connection(conn.pgconn)
    ours.prepare_threshold = None  # the handler's object has used the names
    steps, answer = _complete(completion), None
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


async def complete_async(conn: Connection, completion: Completion) -> Head:
    """Do the same without blocking the event loop."""
    if not has_open_transaction(conn):
        return AS_USUAL
    ours = psycopg.AsyncConnection[Any](conn.pgconn)
    ours.prepare_threshold = None
    steps, answer = _complete(completion), None
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


def _complete(completion: Completion) -> Steps:
    """What is executed, one after the other; the value is the head of `done`."""
    try:
        if completion.is_home:
            session: Session = yield look_at_session(completion.ends)
            if session.has_written:
                return (yield from _complete_with_work(completion, session.role))
        yield None
        return AS_USUAL
    except psycopg.errors.DeadlockDetected as error:
        return given_back(f"{_CONFLICT}{error}")
    except psycopg.errors.SerializationFailure as error:
        remedy = (
            "let ctx.conn() read committed, or commit there by yourself (docs/guides/handlers.md)"
        )
        raise RunError(f"{_CONFLICT}{error}", code="E431", next=remedy) from error


def _complete_with_work(completion: Completion, role: str) -> Steps:
    if role != NO_ROLE:
        yield set_role(NO_ROLE)
    while True:
        [answer] = yield tasks.report([completion.report])
        if not is_busy(answer) or completion.is_cancelled():
            break
    if not is_recorded(answer):
        return refused(answer)
    changes = ()
    if completion.wants_changes:
        changes = yield tasks.run_changes([completion.report.task.run_id])
    if role != NO_ROLE:  # triggers that were deferred to the commit expect it
        yield set_role(role)
    completion.tell_commit()
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
