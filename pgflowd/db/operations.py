"""
The operations of clients on runs. Those that start runs are in `db.starts`, the one that follows
runs in `db.following`.

An operation is a generator. It yields steps (`Query`, `Together`, `Listen`, `Hears`, `Notices`,
`Now`) and receives the result of each; errors are thrown into it. `db.performing` and
`db.performing_async` execute the steps and decide nothing, so the logic exists once.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from pgflowd.core.definition.schedule import Schedule, given_faults
from pgflowd.core.documents.history import RunEvent
from pgflowd.core.documents.runs import Run, RunWithStates
from pgflowd.core.ids import run_id_of
from pgflowd.core.json import encode
from pgflowd.core.typed.values import encode_value
from pgflowd.core.verbs import ADD_SCHEDULE, ANSWER, FIRE, SIGNAL, Returned, SignalReceipt, Verb
from pgflowd.core.waiting import check_dedup, check_signal_name
from pgflowd.db import history, runs
from pgflowd.db.query import Query, Together
from pgflowd.db.verbs import calling
from pgflowd.errors import FlowError, NotFound

AnyRun = TypeVar("AnyRun", bound=Run)
T = TypeVar("T")


@dataclass(frozen=True)
class Listen:
    """Listen on some channels from now on, and on others no more."""

    channels: Collection[str]
    others: Collection[str] = ()


@dataclass(frozen=True)
class Hears:
    """Return whether notifications arrive on this connection, as through no pooler."""


@dataclass(frozen=True)
class Notices:
    """Return the notifications that have come, as soon as there are any, or the time is over."""

    max_s: float


@dataclass(frozen=True)
class Now:
    """Return the seconds of a monotonic clock."""


Step = Query[Any] | Together | Listen | Hears | Notices | Now
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
