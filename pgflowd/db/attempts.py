"""
The queries that read the attempts of a run: how they ended, and what running ones have told.

They need the rights of a viewer. Only `kept_output` reads what handlers have printed.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from itertools import starmap
from typing import Any
from uuid import UUID

from pgflowd.core.documents.runs import Attempt, AttemptOutput, FailedAttempt, TaskProgress
from pgflowd.core.json import decode
from pgflowd.core.output_stream import read
from pgflowd.core.progress import Progress
from pgflowd.core.statuses import Outcome
from pgflowd.db.query import Query, Rows


def run_progress(run_id: UUID) -> Query[list[TaskProgress]]:
    """Return what running tasks of a run have told of their progress."""

    def read(rows: Rows) -> list[TaskProgress]:
        found = [(*row[:-1], Progress.read(decode(row[-1]))) for row in rows]
        return [TaskProgress(*row) for row in found if row[-1]]

    return Query(_RUN_PROGRESS, (run_id,), read)


def failed_attempts(
    run_id: UUID,
    after: datetime | None = None,
    most: int = 1000,
    before: FailedAttempt | None = None,
) -> Query[list[FailedAttempt]]:
    """
    Return the newest attempts of a run that ended without an output, oldest first.

    With `before` those that ended before that one.
    """
    end = (before.ended_at, before.token) if before else (None, None)
    return Query(_FAILED_ATTEMPTS, (run_id, after, most, *end), _read_failed_attempts)


def attempts(run_id: UUID) -> Query[list[Attempt]]:
    """Return all attempts of a run that are kept, oldest first."""
    return Query(_ATTEMPTS, (run_id,), _read_attempts)


def task_attempts(run_id: UUID, step: str, task: int, most: int) -> Query[list[Attempt]]:
    """Return the newest attempts of a task that are kept, the newest first."""
    return Query(_TASK_ATTEMPTS, (run_id, step, task, most), _read_attempts)


def kept_output(
    run_id: UUID, step: str | None, task: int | None, attempt: int | None, most: int
) -> Query[list[AttemptOutput]]:
    """Return what is kept of the output of the newest attempts of a run, step or task."""

    def one(*row: Any) -> AttemptOutput:
        *_, printed = row
        kept = AttemptOutput(*row[:-1], *((None, False) if printed is None else read(printed)))
        return replace(kept, outcome=Outcome(kept.outcome))

    params = (run_id, step, task, attempt, most)
    return Query(_KEPT_OUTPUT, params, lambda rows: list(starmap(one, rows)))


_RUN_PROGRESS = """
select step_slug, task_index, attempt, progress from pgflowd.run_progress(%s)
"""
_FAILED_ATTEMPTS = """
select step_slug, task_index, token, attempt, max_attempts, outcome, error_type, error_message,
       traceback, started_at, ended_at, next_at, printed_lines
  from pgflowd.run_troubles(%s, %s, %s, %s, %s)
"""
_ATTEMPT_COLUMNS = """
select step_slug, task_index, token, attempt, outcome, started_at, ended_at, error_type,
       error_message, traceback, exit_code, exit_signal, cpu_s, peak_kb, worker_id, progress::text,
       printed_lines
  from pgflowd.attempt_history
"""
_ATTEMPTS = f"{_ATTEMPT_COLUMNS} where run_id = %s order by token"
_TASK_ATTEMPTS = f"""
{_ATTEMPT_COLUMNS} where run_id = %s and step_slug = %s and task_index = %s
 order by attempt desc, token desc limit %s
"""


_KEPT_OUTPUT = """
select step_slug, task_index, token, attempt, outcome, started_at, ended_at, printed
  from pgflowd.kept_output(%s, %s, %s, %s, %s)
"""


def _read_failed_attempts(rows: Rows) -> list[FailedAttempt]:
    attempts = starmap(FailedAttempt, rows)
    return [replace(attempt, outcome=Outcome(attempt.outcome)) for attempt in attempts]


def _read_attempts(rows: Rows) -> list[Attempt]:
    def read(*row: Any) -> Attempt:
        one = Attempt(*row)
        outcome, progress = one.outcome and Outcome(one.outcome), Progress.read(decode(row[-2]))
        return replace(one, outcome=outcome, progress=progress)

    return list(starmap(read, rows))
