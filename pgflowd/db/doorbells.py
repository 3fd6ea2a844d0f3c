"""
Arms and disarms workers: their rows in the table of doorbells (docs/background/doorbells.md).

Each function returns a `Query`. A worker's travel with a report or a claim; the sweeper keeps the
doorbells of workers that sleep.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from pgflowd.db.query import Query, only


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
