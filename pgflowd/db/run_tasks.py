"""The tasks of one step of a run: a page of them, and all as a strip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from pgflowd.core.documents.run_tasks import StepStrip, StepTask, StepTasksPage, StripCell
from pgflowd.core.lookup import refuse_unknown_step
from pgflowd.core.statuses import Outcome, TaskStatus
from pgflowd.db.operations import Operation, get_with_states
from pgflowd.db.query import Query, Rows

MAX_CELLS = 200


def find_tasks(
    run_id: UUID, step: str, statuses: Sequence[str], after: int | None, most: int
) -> Operation[StepTasksPage]:
    """Return a page of tasks of a step. NotFound for an unknown run or step."""
    page: StepTasksPage = yield run_tasks(
        run_id, step, statuses, -1 if after is None else after, most
    )
    if not page.tasks:
        refuse_unknown_step((yield from get_with_states(run_id)), step)
    return page


def run_tasks(
    run_id: UUID, step: str, statuses: Sequence[str], after: int, most: int
) -> Query[StepTasksPage]:
    """Return tasks of a step, those after this index, at most so many."""

    def read(rows: Rows) -> StepTasksPage:
        tasks = [_task(StepTask(*row[:-1])) for row in rows if row[0] is not None]
        return StepTasksPage(run_id, step, tasks, rows[0][-1])

    return Query(_RUN_TASKS, (run_id, step, list(statuses) or None, after, most), read)


def step_strip(run_id: UUID, step: str, cells: int = MAX_CELLS) -> Query[StepStrip]:
    """Return the tasks of a step, counted by status in at most so many cells."""

    def read(rows: Rows) -> StepStrip:
        found = [StripCell(row[0], row[1], _counts(row[2:])) for row in rows]
        return StepStrip(run_id, step, found)

    return Query(_STRIP, (run_id, step, cells), read)


def _counts(counts: Sequence[int]) -> dict[TaskStatus, int]:
    found = zip(_COUNTED, counts, strict=True)
    return {status: count for status, count in found if count}


def _task(task: StepTask) -> StepTask:
    outcome = None if task.outcome is None else Outcome(task.outcome)
    return replace(task, status=TaskStatus(task.status), outcome=outcome)


_COUNTED = (  # as the columns of the strip
    TaskStatus.QUEUED, TaskStatus.WAITING, TaskStatus.STARTED, TaskStatus.COMPLETED,
    TaskStatus.FAILED, TaskStatus.SKIPPED,
)  # fmt: skip
_RUN_TASKS = """
select task_index, status, attempts, kind, name, why, since, until, attempt, outcome, started_at,
       ended_at, error_type, error_message, worker, searched_to
  from pgflowd.run_tasks(%s, %s, %s, %s, %s)
"""
_STRIP = """
select first_index, last_index, queued, waiting, started, completed, failed, skipped
  from pgflowd.step_strip(%s, %s, %s)
"""
