"""
Scripts: what a client does, step by step, without doing it.

A script is a generator that yields what it wants done (a `Call`, `Listen`, `Nap`, `Now`) and
gets the answer back; errors come back as exceptions. `db.operations` performs the steps, once on
plain connections and once on asyncio ones, so the logic stands here and stands here once.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID

from pgflowd.core.documents.runs import Run, RunWithStates
from pgflowd.core.json.values import encode
from pgflowd.core.statuses import RunStatus
from pgflowd.db import runs
from pgflowd.db.query import Query
from pgflowd.db.runs import Abilities
from pgflowd.errors import NotFound, RunExists, UnknownFlow, WaitTimeout

SHORTEST_NAP_S = 0.05
LONGEST_NAP_S = 1.0

AnyRun = TypeVar("AnyRun", bound=Run)
T = TypeVar("T")


@dataclass(frozen=True)
class Listen:
    """Listen for the events of a run from now on."""

    channel: str


@dataclass(frozen=True)
class Unlisten:
    """Listen to nothing any more, since the connection may be used again."""


@dataclass(frozen=True)
class Nap:
    """Wait until a notification tells the end of the run, at most so long."""

    longest_s: float


@dataclass(frozen=True)
class Now:
    """Answer the seconds of a clock that only goes forward."""


Operation = Query[Any] | Listen | Unlisten | Nap | Now
Operations = Generator[Operation, Any, T]


def start(flow_slug: str, input: Any, run_id: UUID) -> Operations[Run]:
    _refuse_no_slug(flow_slug)
    text = encode(input, what="input")
    run: Run = yield from _naming(runs.start(flow_slug, text, run_id), flow_slug, run_id)
    return run


def start_many(
    flow_slug: str, inputs: Sequence[Any], run_ids: Sequence[UUID]
) -> Operations[list[Run]]:
    _refuse_no_slug(flow_slug)
    if isinstance(inputs, str | bytes | Mapping):  # these can be counted through as well
        raise TypeError(f"start_flows takes a list of inputs, not one {type(inputs).__name__}")
    if len(inputs) != len(run_ids):
        raise ValueError(f"there are {len(inputs)} inputs and {len(run_ids)} run ids")
    texts = [encode(input, what=f"inputs[{at}]") for at, input in enumerate(inputs)]
    if not texts:
        return []
    can: Abilities = yield runs.abilities()
    call = runs.start_many(flow_slug, texts, run_ids, can)
    started: list[Run] = yield from _naming(call, flow_slug, None)
    return started


def get(run_id: UUID) -> Operations[Run]:
    run: Run | None = yield runs.get(run_id)
    return (yield from _with_cancelled(_known(run, run_id)))


def get_with_states(run_id: UUID) -> Operations[RunWithStates]:
    run: RunWithStates | None = yield runs.get_with_states(run_id)
    return (yield from _with_cancelled(_known(run, run_id)))


def cancel(run_id: UUID, reason: str | None, actor: str | None) -> Operations[Run]:
    yield runs.cancel(run_id, reason, actor)
    return (yield from get(run_id))


def retry(run_id: UUID, actor: str | None, even_if_cancelled: bool) -> Operations[Run]:
    yield runs.retry(run_id, actor, even_if_cancelled)
    return (yield from get(run_id))


def wait(run_id: UUID, timeout_s: float | None, left_s: float | None = None) -> Operations[Run]:
    """Follow a run to its end: notified where there are notifications, polling anyway.

    `left_s` of `timeout_s` are left, where some were spent before.
    """
    began: float = yield Now()
    limit_s = timeout_s if left_s is None else left_s
    yield Listen(runs.channel(run_id))
    can: Abilities = yield runs.abilities()
    nap_s = SHORTEST_NAP_S
    while True:
        run: Run | None = yield runs.glance(run_id, can)
        now: float = yield Now()
        rest_s = float("inf") if limit_s is None else began + limit_s - now
        if run is None or run.has_ended or rest_s <= 0:
            yield Unlisten()
            break
        yield Nap(min(nap_s, rest_s))
        nap_s = min(nap_s * 1.5, LONGEST_NAP_S)
    known = _known(run, run_id)
    if not known.has_ended:
        raise given_up(run_id, timeout_s)
    return (yield from _with_cancelled(known))


def given_up(run_id: UUID, timeout_s: float | None) -> WaitTimeout:
    error = WaitTimeout(
        f"run {run_id} has not ended after {timeout_s:g} s; it goes on",
        next="wait again, or cancel it",
    )
    error.run_id = run_id
    return error


def _naming(call: Query[T], flow_slug: str, run_id: UUID | None) -> Operations[T]:
    """Perform a start; say which flow or run it was about where the database refuses."""
    try:
        started: T = yield call
    except UnknownFlow as error:
        text = f"there is no flow '{flow_slug}' in the database"
        raise UnknownFlow(text, next=f"run `pgflowd flows deploy {flow_slug}`") from error
    except RunExists as error:
        text = f"run {run_id} exists already" if run_id else "one of the runs exists already"
        raise RunExists(text, next="leave run_id out to start another") from error
    return started


def _refuse_no_slug(flow_slug: Any) -> None:
    """Tell of a flow, a job or nothing in the place of a slug, before the database does."""
    if not isinstance(flow_slug, str):
        flow = getattr(flow_slug, "flow", flow_slug)
        hint = f"; write {flow.slug!r}" if hasattr(flow, "slug") else ""
        raise TypeError(f"a flow is named by its slug, not by {repr(flow_slug)[:80]}{hint}")


def _known(run: AnyRun | None, run_id: UUID) -> AnyRun:
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    return run


def _with_cancelled(run: AnyRun) -> Operations[AnyRun]:
    """Look up whether a failed run was in fact cancelled, where that can be known."""
    if run.status is not RunStatus.FAILED:
        return run
    can: Abilities = yield runs.abilities()
    if not can.read_cancelled:
        return run
    found = yield runs.get_cancelled(run.run_id)
    if found is None:
        return run
    at, by, reason = found
    cancelled = RunStatus.CANCELLED
    return replace(run, status=cancelled, cancelled_at=at, cancelled_by=by, cancel_reason=reason)
