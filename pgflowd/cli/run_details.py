"""
Reads all that is shown of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgflowd.cli.terminal.family_view import MAX_FAMILY

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

    from pgflowd.core.documents.runs import RunDetails, RunWithStates

_MAX_LISTED = 1000  # waits and signals of a run; a map may have very many


def read_details(
    connection: psycopg.Connection[Any],
    run_id: UUID,
    *,
    with_attempts: bool = False,
    with_checkpoints: bool = False,
    with_family: bool = False,
    trace_url: str = "",
) -> RunDetails:
    """Read all that is shown of a run. NotFound. `trace_url`: of a trace, as the config has it."""
    from pgflowd.core.documents.runs import RunDetails
    from pgflowd.db import attempts, child_runs, operations, runs, signals, waits
    from pgflowd.db.operations import run_sync
    from pgflowd.db.query import Query, database_time, execute_together

    run = run_sync(connection, operations.get_with_states(run_id))
    queries: list[Query[Any]] = [
        runs.run_steps(run_id),
        attempts.failed_attempts(run_id),
        database_time(),
        waits.waits_of(run_id, _MAX_LISTED),
        signals.list_signals(run_id, only_open=True, most=_MAX_LISTED),
        *([attempts.attempts(run_id)] if with_attempts else []),
        *([waits.list_checkpoints(run_id)] if with_checkpoints else []),
        *([child_runs.family(run_id, MAX_FAMILY)] if with_family else []),
    ]
    steps, failures, now, waiting, unused, *more = execute_together(connection, queries)
    return RunDetails(
        run,
        steps,
        failures,
        attempts=more.pop(0) if with_attempts else None,
        now=now,
        waits=waiting,
        unused=unused,
        checkpoints=more.pop(0) if with_checkpoints else None,
        family=more.pop(0) if with_family else None,
        trace_url=_trace_url(connection, run_id, trace_url),
        **_undo_of(connection, run),
    )


def _trace_url(connection: psycopg.Connection[Any], run_id: UUID, url: str) -> str | None:
    from pgflowd.core.settings.rules import TRACE_ID
    from pgflowd.db.query import execute
    from pgflowd.db.traces import trace_id

    return url.replace(TRACE_ID, execute(connection, trace_id(run_id))) if url else None


def _undo_of(connection: psycopg.Connection[Any], run: RunWithStates) -> dict[str, Any]:
    """How far a run is undone, and by which run, if it is to be."""
    from pgflowd.db import runs, undos
    from pgflowd.db.query import Query, execute_together

    if run.undo_run_id is None:
        return {}
    queries: list[Query[Any]] = [
        undos.run_undos(run.run_id),
        runs.get_planned(run.undo_run_id),
    ]
    steps, undo = execute_together(connection, queries)
    return {"undos": steps, "undo": undo}
