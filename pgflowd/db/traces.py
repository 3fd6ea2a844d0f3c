"""Reads to which trace a run belongs."""

from __future__ import annotations

from uuid import UUID

from pgflowd.db.query import Query, only


def trace_id(run_id: UUID) -> Query[str]:
    """Return the id of the trace of a run, also of one that was never traced."""
    return Query("select pgflowd.trace_id(%s)", (run_id,), only)
