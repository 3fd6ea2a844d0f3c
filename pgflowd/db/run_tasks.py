"""The query for the tasks of one step of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from pgflowd.core.documents.run_tasks import StepTask, StepTasksPage
from pgflowd.core.statuses import Outcome, TaskStatus
from pgflowd.db.query import Query, Rows


def run_tasks(
    run_id: UUID, step: str, statuses: Sequence[str], after: int, most: int
) -> Query[StepTasksPage]:
    """Return tasks of a step, those after this index, at most so many."""

    def read(rows: Rows) -> StepTasksPage:
        tasks = [_task(StepTask(*row[:-1])) for row in rows if row[0] is not None]
        return StepTasksPage(run_id, step, tasks, rows[0][-1])

    return Query(_RUN_TASKS, (run_id, step, list(statuses) or None, after, most), read)


def _task(task: StepTask) -> StepTask:
    outcome = None if task.outcome is None else Outcome(task.outcome)
    return replace(task, status=TaskStatus(task.status), outcome=outcome)


_RUN_TASKS = """
select task_index, status, attempts, kind, name, why, since, until, attempt, outcome, started_at,
       ended_at, error_type, error_message, worker, searched_to
  from pgflowd.run_tasks(%s, %s, %s, %s, %s)
"""
