"""
Reads all that is shown of a run.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pgflowd.core.documents.families import MAX_FAMILY
from pgflowd.core.documents.runs import RunDetails
from pgflowd.core.settings.values import TRACE_ID
from pgflowd.db import attempts, child_runs, runs, signals, undos, waits
from pgflowd.db.operations import Operation, get_with_states
from pgflowd.db.query import Query, Together, database_time
from pgflowd.db.traces import trace_id

_MAX_LISTED = 1000  # waits and signals of a run; a map may have very many


def read_details(
    run_id: UUID,
    *,
    with_attempts: bool = False,
    with_checkpoints: bool = False,
    with_family: bool = False,
    trace_url: str = "",
) -> Operation[RunDetails]:
    """Read all that is shown of a run. NotFound. `trace_url`: of a trace, as the config has it."""
    run = yield from get_with_states(run_id)
    queries: dict[str, Query[Any]] = {
        "steps": runs.run_steps(run_id),
        "failures": attempts.failed_attempts(run_id),
        "now": database_time(),
        "waits": waits.waits_of(run_id, _MAX_LISTED),
        "unused": signals.list_signals(run_id, only_open=True, most=_MAX_LISTED),
    }
    if run.has_ended:
        queries["has_undos"] = undos.has_undos(run.flow_slug)
    if with_attempts:
        queries["attempts"] = attempts.attempts(run_id)
    if with_checkpoints:
        queries["checkpoints"] = waits.list_checkpoints(run_id)
    if with_family:
        queries["family"] = child_runs.family(run_id, MAX_FAMILY)
    if trace_url:
        queries["trace_url"] = trace_id(run_id)
    if run.undo_run_id is not None:
        queries["undos"] = undos.run_undos(run_id)
        queries["undo"] = runs.get(run.undo_run_id)
    found: list[Any] = yield Together(list(queries.values()))
    details = {"attempts": None, **dict(zip(queries, found, strict=True))}
    if trace_url:
        details["trace_url"] = trace_url.replace(TRACE_ID, details["trace_url"])
    return RunDetails(run, **details)
