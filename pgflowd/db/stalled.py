"""
Operate: what operators do by hand to single tasks that nobody works on any more.

Both return False, and have done nothing, if the task is not stalled; NotFound if there is none.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from pgflowd.db.query import Query, execute, only

Connection = psycopg.Connection[Any]


def requeue_task(
    conn: Connection, run_id: UUID, step: str, index: int, stale_threshold_s: float
) -> bool:
    """Hand a stalled task out again, without spending the attempt."""
    params = (run_id, step, index, timedelta(seconds=stale_threshold_s))
    sql = "select pgflowd.requeue_task(%s, %s, %s, %s, session_user)"
    return bool(execute(conn, Query(sql, params, only)))


def give_up_task(
    conn: Connection,
    run_id: UUID,
    step: str,
    index: int,
    stale_threshold_s: float,
    reason: str | None,
) -> bool:
    """Fail a stalled task for good, with a reason."""
    params = (run_id, step, index, timedelta(seconds=stale_threshold_s), reason)
    sql = "select pgflowd.give_up_task(%s, %s, %s, %s, %s, session_user)"
    return bool(execute(conn, Query(sql, params, only)))
