"""
Does what is due in the database: gives signals to who waits for them, frees who has waited enough;
arms and disarms workers by their rows in the table of doorbells.

Each function returns a `Query` for the sweeper (docs/background/doorbells.md, section 4).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from pgflowd.db.query import Query, only

NOT_DONE = "PF013"  # the notice that something due could not be done, and is tried again
UNDO_ENDED = "PF015"  # the notice that the undo of a run has ended
KINDS = ("signals", "limits", "runs", "awaits", "waits")  # of what is due, in their order


class DueLook(NamedTuple):
    """How much was done, None while another sweeper is at it; in how many seconds more is due."""

    done: int | None
    next_s: float | None
    has_ticks: bool  # schedules are due


class NotDone(NamedTuple):
    """A task that could not be freed, or a run that could not begin or end, and why."""

    run_id: str
    step: str | None  # None: the run itself
    task_index: int | None
    error: str
    again_s: float | None  # until it is tried again, where it was postponed; None: a minute


def process_due(max_rows: int = 200, kind: str | None = None) -> Query[DueLook]:
    """Do what is due, of one kind or of all."""
    query = "select done, next_s, has_ticks from pgflowd.process_due(%s, %s)"
    return Query(query, (max_rows, kind), lambda rows: DueLook(*rows[0]))


def postpone_due(kind: str, why: str) -> Query[None]:
    """Postpone what `process_due(1, kind)` could not do; a notice names it."""
    return Query("select pgflowd.postpone_due(%s, %s)", (kind, why), lambda rows: None)


def due_late() -> Query[float]:
    """For how many seconds the first thing has been due that is not done."""
    return Query("select pgflowd.due_late()", (), only)


def sweeper_sleeps(sweeper_id: UUID, for_s: float) -> Query[None]:
    """Let whoever makes something due within this time notify."""
    query = "select pgflowd.sweeper_sleeps(%s, %s)"
    return Query(query, (sweeper_id, for_s), lambda rows: None)


def due_writers(known: Sequence[str] | None) -> Query[tuple[str, ...]]:
    """Return the open transactions that may have missed a sleeper's row; of `known`, if given."""
    query = "select pgflowd.due_writers(%s::text[])"
    return Query(query, (None if known is None else list(known),), lambda rows: tuple(only(rows)))


def not_done(detail: str) -> NotDone:
    """Read the detail of that notice."""
    told = json.loads(detail)
    return NotDone(
        told["run"], told.get("step"), told.get("task_index"), told["error"], told.get("again_s")
    )


# doorbells


def arm(queue: str, owner: UUID) -> Query[bool]:
    """Let messages sent to this queue notify; return whether they did not before."""
    return Query("select pgflowd.arm(%s, %s)", (queue, owner), only)


def arm_sleepers(sleepers: Sequence[tuple[str, str]]) -> Query[tuple[str, ...]]:
    """Keep the doorbells of sleepers (queue, owner) up; return the queues of lost ones."""
    query = """
    select sleeper.queue from unnest(%s::text[], %s::uuid[]) as sleeper (queue, owner)
     where pgflowd.arm(sleeper.queue, sleeper.owner)
    """
    queues, owners = [queue for queue, _ in sleepers], [owner for _, owner in sleepers]
    return Query(query, (queues, owners), lambda rows: tuple(row[0] for row in rows))


def disarm(queue: str, owner: UUID) -> Query[None]:
    """Take the owner's doorbell down."""
    return Query("select pgflowd.disarm(%s, %s)", (queue, owner), lambda rows: None)


def writers(queue: str, known: Sequence[str] | None) -> Query[tuple[str, ...]]:
    """Return the open transactions that may have sent messages unrung; of `known`, if given."""
    params = (queue, None if known is None else list(known))
    query = "select pgflowd.writers(%s, %s::text[])"
    return Query(query, params, lambda rows: tuple(only(rows)))
