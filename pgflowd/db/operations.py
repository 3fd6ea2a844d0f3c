"""
The operations of clients on runs, and their execution on plain and asyncio connections. Those that
start runs are in `db.starts`.

An operation is a generator. It yields steps (`Query`, `Together`, `Listen`, `Hears`, `Nap`, `Now`)
and receives the result of each; errors are thrown into it. `run_sync` and `run_async` execute the
steps and decide nothing, so the logic exists once.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg import sql

from pgflowd.core.definition.schedule import Schedule, given_faults
from pgflowd.core.documents.history import RunEvent
from pgflowd.core.documents.runs import Run, RunWithStates
from pgflowd.core.ids import run_id_of
from pgflowd.core.json import encode
from pgflowd.core.statuses import RunStatus
from pgflowd.core.typed.values import encode_value
from pgflowd.core.verbs import ADD_SCHEDULE, ANSWER, FIRE, SIGNAL, Returned, SignalReceipt, Verb
from pgflowd.core.waiting import check_dedup, check_signal_name
from pgflowd.db import history, runs
from pgflowd.db.connection import is_pooled, translated
from pgflowd.db.foreign_connections import (
    AsyncForeignConnection,
    ForeignConnection,
)
from pgflowd.db.query import (
    Query,
    Together,
    execute,
    execute_async,
    execute_together,
    execute_together_async,
)
from pgflowd.db.verbs import calling
from pgflowd.errors import FlowError, NotFound, WaitTimeout

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
AnyRun = TypeVar("AnyRun", bound=Run)
T = TypeVar("T")

# between two reads of a run: notifications are faster, but may be missed
MIN_NAP_S, MAX_NAP_S = 0.05, 1.0
# between two attempts to connect again
MIN_RECONNECT_S, MAX_RECONNECT_S = 0.1, 5.0

# while it has one of these, nobody notifies of what happens in it
_QUIET = (RunStatus.SCHEDULED, RunStatus.BLOCKED, RunStatus.UNDOING)


@dataclass(frozen=True)
class Listen:
    """Listen for the events of a run from now on."""

    channel: str


@dataclass(frozen=True)
class Hears:
    """Return whether notifications arrive on this connection, as through no pooler."""


@dataclass(frozen=True)
class Unlisten:
    """Stop listening, because the connection may be used again."""


@dataclass(frozen=True)
class Nap:
    """Wait until a notification reports the end of the run, or until the time is over."""

    max_s: float
    any_event: bool = False  # also whatever else happens in it


@dataclass(frozen=True)
class Now:
    """Return the seconds of a monotonic clock."""


Step = Query[Any] | Together | Listen | Hears | Unlisten | Nap | Now
Operation = Generator[Step, Any, T]


def as_operation(query: Query[T]) -> Operation[T]:
    """The operation that is this one query."""
    result: T = yield query
    return result


def get(run_id: UUID) -> Operation[Run]:
    run: Run | None = yield runs.get(run_id)
    return _found(run, run_id)


def get_with_states(run_id: UUID) -> Operation[RunWithStates]:
    run: RunWithStates | None = yield runs.get_with_states(run_id)
    return _found(run, run_id)


def _found(run: AnyRun | None, run_id: UUID) -> AnyRun:
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    return run


def perform(verb: Verb[T], *target: Any, actor: str | None = None, **given: Any) -> Operation[T]:
    """Do to its target what a row of `core.verbs` says, with the arguments of its function."""
    answer: Any = yield calling(verb, *target, actor=actor, **given)
    if verb.answer is Returned.RUN:
        answer = yield from get(run_id_of(target[0]))
    found: T = answer
    return found


def timeline(
    run_id: UUID, after: datetime | None, before: datetime | None, most: int | None
) -> Operation[list[RunEvent]]:
    """What happened in a run. NotFound for an unknown one, whose timeline is empty."""
    events: list[RunEvent] = yield history.timeline(run_id, after, before, most)
    if not events:
        yield from get(run_id)
    return events


def signal(
    run_id: UUID | str, name: str, payload: Any, actor: str | None, dedup: str | None
) -> Operation[SignalReceipt]:
    check_signal_name(name)
    check_dedup(dedup)
    sent = encode_value(payload, what="payload")
    return perform(SIGNAL, run_id, name=name, payload=sent, dedup=dedup, actor=actor)


def answer(
    run_id: UUID | str,
    step: str,
    is_approved: bool,
    note: str,
    actor: str | None,
    dedup: str | None,
) -> Operation[SignalReceipt]:
    """Approve or reject: a signal with the name of the step."""
    check_signal_name(step)
    check_dedup(dedup)
    encode(note, what="note")
    given = {"step_slug": step, "is_approved": is_approved, "note": note, "dedup": dedup}
    return perform(ANSWER, run_id, actor=actor, **given)


def add_schedule(
    name: str, flow_slug: str, schedule: Schedule, actor: str | None
) -> Operation[bool]:
    """Whether it was not so before. FlowError for a schedule that cannot be."""
    if faults := given_faults(name, schedule):
        raise FlowError(faults)
    return perform(
        ADD_SCHEDULE, name, flow_slug=flow_slug, cron=" ".join(schedule.cron.split()),
        input=encode(schedule.input, what="input"), timezone=schedule.timezone,
        overlap=schedule.overlap, catchup=schedule.catchup, actor=actor,
    )  # fmt: skip


def fire_for_run(name: str, actor: str | None) -> Operation[Run]:
    """The run that a schedule starts now, or the one that has not ended."""
    fired = yield from perform(FIRE, name, actor=actor)
    return (yield from get(fired.run_id))


def wait(
    run_id: UUID, timeout_s: float | None, left_s: float | None = None, *, is_followed: bool = False
) -> Operation[Run]:
    """
    Wait for the end of a run. `left_s` is the rest of `timeout_s` after an earlier try.

    What has happened before the run is followed is found by reading it afterwards.
    """
    began: float = yield Now()
    limit_s = timeout_s if left_s is None else left_s
    yield Listen(runs.channel(run_id))
    follow_at = began + (runs.FOLLOW_AGAIN_S if is_followed else 0.0)
    if not (yield Hears()):
        follow_at = float("inf")
    nap_s = MIN_NAP_S
    while True:
        now = yield Now()
        if now >= follow_at:
            follow_at = now + (yield runs.follow([run_id]))
        run: Run | None = yield runs.get(run_id)
        now = yield Now()
        rest_s = float("inf") if limit_s is None else began + limit_s - now
        if run is None or run.has_ended or rest_s <= 0:
            break
        if run.status in _QUIET:
            yield Nap(min(MAX_NAP_S, rest_s))
            continue
        yield Nap(min(nap_s, rest_s, max(follow_at - now, 0.0)))
        nap_s = min(nap_s * 1.5, MAX_NAP_S)
    yield Unlisten()
    known = _found(run, run_id)
    if not known.has_ended:
        raise wait_timeout(run_id, timeout_s, known.status)
    return known


def wait_timeout(
    run_id: UUID, timeout_s: float | None, status: RunStatus = RunStatus.STARTED
) -> WaitTimeout:
    does, remedy = "continues", "wait again, or cancel it"
    if status in (RunStatus.WAITING, RunStatus.QUARANTINED):
        does, remedy = "waits", f"`pgflowd runs show {run_id}` says for what"
    if status is RunStatus.PAUSED:
        does, remedy = "is paused", f"`pgflowd runs resume {run_id}` lets it go on"
    if status is RunStatus.SCHEDULED:
        does = "has not begun"
    if status is RunStatus.BLOCKED:
        does, remedy = "has not begun", f"`pgflowd runs show {run_id}` says for what"
    if status is RunStatus.UNDOING:
        does, remedy = "is being undone", f"`pgflowd runs show {run_id}` says how far it is"
    text = f"run {run_id} has not ended after {timeout_s:g} s; it {does}"
    error = WaitTimeout(text, next=remedy)
    error.run_id = run_id
    return error


def run_sync(conn: Connection | ForeignConnection, operation: Operation[T]) -> T:
    """Execute an operation on a plain connection."""
    try:
        step = next(operation)
        while True:
            try:
                result = _execute(conn, step)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


def _execute(conn: Connection | ForeignConnection, step: Step) -> Any:
    if isinstance(conn, ForeignConnection):
        return conn.perform(step)
    if isinstance(step, Query):
        return execute(conn, step)
    if isinstance(step, Together):
        return execute_together(conn, step.queries)
    if isinstance(step, Hears):
        return not is_pooled(conn)
    with translated(conn):
        if command := _command(conn, step):
            conn.execute(command)
        elif isinstance(step, Nap):
            until = time.monotonic() + step.max_s
            while (left_s := until - time.monotonic()) > 0:
                for notice in conn.notifies(timeout=left_s, stop_after=1):
                    if step.any_event or runs.is_end_event(notice.payload):
                        return None
    return time.monotonic()


async def run_async(conn: AsyncConnection | AsyncForeignConnection, operation: Operation[T]) -> T:
    """Execute an operation on an asyncio connection."""
    try:
        step = next(operation)
        while True:
            try:
                result = await _execute_async(conn, step)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def _execute_async(conn: AsyncConnection | AsyncForeignConnection, step: Step) -> Any:
    if isinstance(conn, AsyncForeignConnection):
        return await conn.perform(step)
    if isinstance(step, Query):
        return await execute_async(conn, step)
    if isinstance(step, Together):
        return await execute_together_async(conn, step.queries)
    if isinstance(step, Hears):
        return not is_pooled(conn)
    with translated(conn):
        if command := _command(conn, step):
            await conn.execute(command)
        elif isinstance(step, Nap):
            until = time.monotonic() + step.max_s
            while (left_s := until - time.monotonic()) > 0:
                async for notice in conn.notifies(timeout=left_s, stop_after=1):
                    if step.any_event or runs.is_end_event(notice.payload):
                        return None
    return time.monotonic()


def _command(conn: Connection | AsyncConnection, step: Step) -> sql.SQL | sql.Composed | None:
    """Return the command of Listen and Unlisten, which do nothing through a pooler."""
    if isinstance(step, Listen) and not is_pooled(conn):
        return sql.SQL("listen {}").format(sql.Identifier(step.channel))
    return sql.SQL("unlisten *") if isinstance(step, Unlisten) and not is_pooled(conn) else None
