"""
The operations of clients on runs, and `calling`, the call of a verb's SQL function. The operation
that follows runs is in `db.following`.

An operation is a generator. It yields steps (`Query`, `Together`, `Listen`, `Hears`, `Notices`)
and receives the result of each; errors are thrown into it. `db.performing` and
`db.performing_async` execute the steps and decide nothing, so the logic exists once.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from pgflowd.core import verbs
from pgflowd.core.definition.schedule import Schedule, given_faults
from pgflowd.core.documents.run_tasks import RunEvent
from pgflowd.core.documents.runs import Run, RunWithStates
from pgflowd.core.documents.schedules import Fired
from pgflowd.core.ids import run_id_of, uuid7
from pgflowd.core.json import encode
from pgflowd.core.traces import CallerTrace
from pgflowd.core.typed.codec import encode_value
from pgflowd.core.verbs import SignalReceipt, Verb
from pgflowd.core.waiting import check_dedup, check_signal_name
from pgflowd.core.wishes import NEVER, Wishes, checked, require_slug
from pgflowd.db import runs
from pgflowd.db.query import MOMENT, Query, Rows, Together, only
from pgflowd.errors import BadDependency, FlowError, MapInput, NotFound, RunExists, UnknownFlow

_PLACES = {verbs.Kind.MOMENT: MOMENT, verbs.Kind.JSON: "%s::jsonb", verbs.Kind.WORDS: "%s::text[]",
           verbs.Kind.RUNS: "%s::uuid[]"}  # fmt: skip
_ACTOR = "actor => coalesce(%s::text, session_user)"
_REPEATED = "repeated"  # the answer to what had been done before


def calling(verb: Verb[Any], *target: Any, actor: str | None = None, **given: Any) -> Query[Any]:
    """
    The call of a verb's function; an argument that is not given is null, or false.

    Without an actor it is the user of the session.
    """
    if verb.target in (verbs.Target.RUN, verbs.Target.TASK):
        target = (run_id_of(target[0]), *target[1:])
    places = [f"{name} => %s" for name in verb.target.value]
    params = list(target)
    for each in verb.arguments:
        places.append(f"{each.name} => {_PLACES.get(each.kind, '%s')}")
        value = given.pop(each.name, None)
        match each.kind:
            case verbs.Kind.FLAG:
                params.append(bool(value))
            case verbs.Kind.MOMENT:
                params += [(value or NEVER).at, (value or NEVER).in_s]
            case verbs.Kind.DURATION:
                params.append(None if value is None else timedelta(seconds=value))
            case verbs.Kind.WORDS:
                params.append(list(value) if value else None)
            case verbs.Kind.RUNS:
                params.append(None if value is None else list(value))
            case _:
                params.append(value)
    if given:
        raise TypeError(f"`{verb.command}` has no argument {', '.join(given)}")
    call = f"pgflowd.{verb.function}({', '.join([*places, _ACTOR])})"
    sql, read = _ANSWERS.get(verb.answer, ("select {call}", only))
    return Query(sql.format(call=call), [*params, actor], read)


_ANSWERS: dict[verbs.Returned, tuple[str, Callable[[Rows], Any]]] = {
    verbs.Returned.CHANGED: ("select {call}", lambda rows: only(rows) != _REPEATED),
    verbs.Returned.SIGNAL: ("select {call}, now()", lambda rows: SignalReceipt(*rows[0])),
    verbs.Returned.FIRED: (
        "select run_id::text, status from {call}",
        lambda rows: Fired(UUID(rows[0][0]), rows[0][1]),
    ),
}


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


Step = Query[Any] | Together | Listen | Hears | Notices
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
    if verb.answer is verbs.Returned.RUN:
        answer = yield from get(run_id_of(target[0]))
    found: T = answer
    return found


def timeline(
    run_id: UUID, after: datetime | None, before: datetime | None, most: int | None
) -> Operation[list[RunEvent]]:
    """What happened in a run. NotFound for an unknown one, whose timeline is empty."""
    events: list[RunEvent] = yield runs.timeline(run_id, after, before, most)
    if not events:
        yield from get(run_id)
    return events


def signal(
    run_id: UUID | str, name: str, payload: Any, actor: str | None, dedup: str | None
) -> Operation[SignalReceipt]:
    check_signal_name(name)
    check_dedup(dedup)
    sent = encode_value(payload, what="payload")
    return perform(verbs.SIGNAL, run_id, name=name, payload=sent, dedup=dedup, actor=actor)


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
    return perform(verbs.ANSWER, run_id, actor=actor, **given)


def add_schedule(
    name: str, flow_slug: str, schedule: Schedule, actor: str | None
) -> Operation[bool]:
    """Whether it was not so before. FlowError for a schedule that cannot be."""
    if faults := given_faults(name, schedule):
        raise FlowError(faults)
    return perform(
        verbs.ADD_SCHEDULE, name, flow_slug=flow_slug, cron=" ".join(schedule.cron.split()),
        input=encode(schedule.input, what="input"), timezone=schedule.timezone,
        overlap=schedule.overlap, catchup=schedule.catchup, actor=actor,
    )  # fmt: skip


def fire_for_run(name: str, actor: str | None) -> Operation[Run]:
    """The run that a schedule starts now, or the one that has not ended."""
    fired = yield from perform(verbs.FIRE, name, actor=actor)
    return (yield from get(fired.run_id))


# starts, with wishes or without: one without is one query, and costs nothing for what others wish


RunId = UUID | str

_KEY = re.compile(r"\(run_id\)=\(([^)]+)\)")  # in the detail of a repeated key


def start(
    flow_slug: str,
    input: Any,
    run_id: RunId | None,
    key: str | None,
    wishes: Wishes,
    trace: CallerTrace | None = None,
    *,
    is_awaited: bool = False,
) -> Operation[Run]:
    """Start a run; one without wishes for whose end somebody waits is followed from the start."""
    require_slug(flow_slug)
    text, given = encode_value(input, what="input"), checked(wishes, key, trace)
    new_id = _id_or_new(run_id)
    chosen: UUID | None = new_id
    if given:
        if given.key is not None and run_id is None:
            chosen = None  # the key says which run it is
        query = runs.start_wished(flow_slug, [text], [chosen], given)
    elif is_awaited and (yield Hears()):
        query = runs.start_followed(flow_slug, text, new_id)
    else:
        query = runs.start(flow_slug, [text], [new_id])
    started = yield from _started(query, flow_slug, chosen)
    return started[0]


def start_many(
    flow_slug: str,
    inputs: Sequence[Any],
    run_ids: Sequence[RunId] | None,
    wishes: Wishes,
    trace: CallerTrace | None = None,
) -> Operation[list[Run]]:
    require_slug(flow_slug)
    if isinstance(inputs, str | bytes | Mapping):  # these have elements as well
        raise TypeError(f"start_flows takes a list of inputs, not one {type(inputs).__name__}")
    if run_ids is not None and len(inputs) != len(run_ids):
        raise ValueError(f"there are {len(inputs)} inputs and {len(run_ids)} run ids")
    ids = [_id_or_new(run_ids[at] if run_ids else None) for at in range(len(inputs))]
    texts = [encode_value(input, what=f"inputs[{at}]") for at, input in enumerate(inputs)]
    given = checked(wishes, trace=trace)
    if not texts:
        return []
    query = runs.start(flow_slug, texts, ids)
    if given:
        query = runs.start_wished(flow_slug, texts, ids, given)
    try:
        return (yield from _started(query, flow_slug, None))
    except MapInput as error:
        at = next((at for at, text in enumerate(texts) if not text.startswith("[")), 0)
        raise MapInput(f"inputs[{at}]: {error.text}", next=error.next) from error


def _started(query: Query[list[Run]], flow_slug: str, run_id: UUID | None) -> Operation[list[Run]]:
    """Execute a start; if the database refuses it, name the flow or the run in the error."""
    try:
        started: list[Run] = yield query
    except BadDependency:
        raise
    except (UnknownFlow, NotFound) as error:
        text = f"there is no flow '{flow_slug}' in the database"
        raise UnknownFlow(text, next=f"run `pgflowd flows deploy {flow_slug}`") from error
    except RunExists as error:
        found = _KEY.search(error.text)
        name = run_id or (found[1] if found else "with one of these ids")
        raise RunExists(
            f"run {name} already exists", next="leave run_id out to start another"
        ) from error
    return started


def new_run_id() -> UUID:
    """An id that no run has."""
    return uuid7(time.time_ns() // 1_000_000, os.urandom(10))


def _id_or_new(run_id: RunId | None) -> UUID:
    return new_run_id() if run_id is None else run_id_of(run_id)
