"""
Run view: everything `runs show` tells of a run, read in one go.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pgflowd.db import client_steps, overview
from pgflowd.db.operations import run_sync
from pgflowd.db.overview import StepTasks, Trouble
from pgflowd.db.query import Query, execute_together
from pgflowd.db.runs import RunWithStates

if TYPE_CHECKING:
    import psycopg


@dataclass(frozen=True)
class RunFacts:
    """A run as it was at `now`, by the database's clock."""

    run: RunWithStates
    steps: list[StepTasks]
    troubles: list[Trouble]
    attempts: list[dict[str, Any]] | None
    now: datetime


def facts_of(
    conn: psycopg.Connection[Any], run_id: UUID, *, with_attempts: bool = False
) -> RunFacts:
    """Look at a run. NotFound."""
    run = run_sync(conn, client_steps.get_with_states(run_id))
    calls: list[Query[Any]] = [
        overview.run_steps(run_id),
        overview.run_troubles(run_id),
        overview.now(),
    ]
    if with_attempts:
        calls.append(overview.attempts(run_id))
    steps, troubles, now, *attempts = execute_together(conn, calls)
    return RunFacts(run, steps, troubles, attempts[0] if attempts else None, now)
