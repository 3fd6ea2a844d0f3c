"""Queries about the undo of runs."""

from __future__ import annotations

from itertools import starmap
from uuid import UUID

from pgflowd.core.documents.undos import StepUndo
from pgflowd.db.query import Query, Rows, only


def has_undos(flow_slug: str) -> Query[bool]:
    """Whether a step of the flow has an undo."""
    return Query(_HAS_UNDOS, (flow_slug,), only)


def run_undos(run_id: UUID) -> Query[dict[str, StepUndo]]:
    """Return how far each step is undone of which something is, or was, to be undone."""

    def read(rows: Rows) -> dict[str, StepUndo]:
        return {each.step_slug: each for each in starmap(StepUndo, rows)}

    return Query(_RUN_UNDOS, (run_id,), read)


_HAS_UNDOS = """
select exists (select from pgflow.flows where flow_slug = pgflowd._undo_flow(%s))
"""
_RUN_UNDOS = """
select step_slug, tasks, undone, failed, open, error from pgflowd.run_undos(%s)
"""
