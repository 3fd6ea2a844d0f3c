"""
Changes many runs, fifty in a transaction. A run that refuses keeps none of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from pgflowd.errors import PgflowdError, RunError, Unreachable

Connection = psycopg.Connection[Any]
T = TypeVar("T")

AT_ONCE = 50  # in one transaction: it holds their locks until its end
_IN_THE_WAY = (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable)


def change_many(
    conn: Connection, run_ids: Sequence[UUID], change: Callable[[UUID], T]
) -> Iterator[tuple[UUID, T | PgflowdError]]:
    """Change each run; give what became of it, once that has been committed."""
    for first in range(0, len(run_ids), AT_ONCE):
        yield from _change_some(conn, run_ids[first : first + AT_ONCE], change)


def _change_some(
    conn: Connection, run_ids: Sequence[UUID], change: Callable[[UUID], T]
) -> Iterator[tuple[UUID, T | PgflowdError]]:
    """One after the other if together they were in somebody's way."""
    with suppress(*_IN_THE_WAY):
        with conn.transaction():
            results = [(run_id, _change_one(conn, run_id, change)) for run_id in run_ids]
        yield from results
        return
    for run_id in run_ids:
        try:
            yield run_id, _change_one(conn, run_id, change)
        except _IN_THE_WAY as error:
            text = str(error.diag.message_primary)
            yield run_id, RunError(f"run {run_id} was left as it is: {text}", next="try it again")


def _change_one(conn: Connection, run_id: UUID, change: Callable[[UUID], T]) -> T | PgflowdError:
    try:
        with conn.transaction():
            return change(run_id)
    except Unreachable:
        raise
    except PgflowdError as error:
        return error
