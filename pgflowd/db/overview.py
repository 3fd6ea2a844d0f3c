"""
Overview: what operators look at: runs and their steps, troubles, flows, stalled tasks.

Each function returns a `Call` of a function in schema `pgflowd`, which `db.query.run` performs.
They need the rights of a viewer. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import starmap
from typing import Any
from uuid import UUID

from pgflowd.core.documents.flows import ListedFlow, StalledTask
from pgflowd.core.documents.runs import Attempt, FailedAttempt, ListedRun, StepTasks
from pgflowd.core.json.values import decode
from pgflowd.core.statuses import Outcome, RunStatus
from pgflowd.db.query import Query, Rows, only


def now() -> Query[datetime]:
    """The database's clock, by which its times are told."""
    return Query("select clock_timestamp()", (), only)


def find_runs(digits: str, most: int = 2) -> Query[list[tuple[UUID, str]]]:
    """Runs whose id ends with these digits, newest first."""
    sql = "select run_id, flow_slug from pgflowd.find_runs(%s, %s)"
    return Query(sql, (digits, most), lambda rows: [(row[0], row[1]) for row in rows])


def list_runs(
    flow_slug: str | None = None,
    statuses: Sequence[str] = (),
    since_s: float | None = None,
    most: int = 20,
) -> Query[list[ListedRun]]:
    """The newest runs."""
    since = None if since_s is None else timedelta(seconds=since_s)
    params = (flow_slug, list(statuses) or None, since, most)
    return Query(_LIST_RUNS, params, _listed_runs)


def run_steps(run_id: UUID) -> Query[list[StepTasks]]:
    """The steps of a run in topological order."""
    return Query(_RUN_STEPS, (run_id,), lambda rows: [StepTasks(*row) for row in rows])


def run_troubles(run_id: UUID, after: datetime | None = None) -> Query[list[FailedAttempt]]:
    """The attempts of a run that ended without an output, oldest first."""
    return Query(_RUN_TROUBLES, (run_id, after), _failed_attempts)


def attempts(run_id: UUID) -> Query[list[Attempt]]:
    """All attempts of a run that are kept."""
    return Query(_ATTEMPTS, (run_id,), _attempts)


def list_flows() -> Query[list[ListedFlow]]:
    """All flows in the database."""
    return Query(_LIST_FLOWS, (), lambda rows: [ListedFlow(*row) for row in rows])


def flow_shape(flow_slug: str) -> Query[dict[str, Any] | None]:
    """The shape of a flow, with the options in force; None for an unknown flow."""
    return Query("select pgflowd.flow_shape(%s)", (flow_slug,), lambda rows: decode(only(rows)))


def stalled_tasks(stale_threshold_s: float) -> Query[list[StalledTask]]:
    """The tasks that nobody works on any more, oldest first."""
    params = (timedelta(seconds=stale_threshold_s),)
    return Query(_STALLED, params, lambda rows: [StalledTask(*row) for row in rows])


def _listed_runs(rows: Rows) -> list[ListedRun]:
    return [replace(run, status=RunStatus(run.status)) for run in starmap(ListedRun, rows)]


def _failed_attempts(rows: Rows) -> list[FailedAttempt]:
    return [
        replace(attempt, outcome=Outcome(attempt.outcome))
        for attempt in starmap(FailedAttempt, rows)
    ]


def _attempts(rows: Rows) -> list[Attempt]:
    return [
        replace(attempt, outcome=attempt.outcome and Outcome(attempt.outcome))
        for attempt in starmap(Attempt, rows)
    ]


_LIST_RUNS = """
select run_id, flow_slug, status, started_at, ended_at, steps, steps_done, error_message
  from pgflowd.list_runs(%s, %s, %s, %s)
"""
_RUN_STEPS = """
select step_slug, step_type, deps, tasks, queued, running, completed, failed, attempts,
       max_attempts, timeout_s, running_since, next_at
  from pgflowd.run_steps(%s)
"""
_RUN_TROUBLES = """
select step_slug, task_index, token, attempt, max_attempts, outcome, error_type, error_message,
       traceback, started_at, ended_at, next_at
  from pgflowd.run_troubles(%s, %s)
"""
_ATTEMPTS = """
select step_slug, task_index, token, attempt, outcome, started_at, ended_at, error_type,
       error_message, traceback, exit_code, exit_signal, cpu_s, peak_kb, worker_id
  from pgflowd.attempt_history where run_id = %s order by token
"""
_LIST_FLOWS = """
select flow_slug, steps, queue_name, is_watched, queued, oldest_queued_at, running, active_runs,
       workers, last_run_at, created_at
  from pgflowd.list_flows()
"""
_STALLED = """
select run_id, step_slug, task_index, flow_slug, worker_id, attempt, started_at, stalled_at,
       times, reason
  from pgflowd.stalled_tasks(%s)
"""
