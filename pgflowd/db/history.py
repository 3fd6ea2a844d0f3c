"""
The queries that read what has happened: events, actions, attempts and their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import starmap
from typing import Any, Literal
from uuid import UUID

from pgflowd.core.documents.history import DeadLetter, EventPage, PersonAction, RunEvent
from pgflowd.core.documents.run_tasks import ValueMember, ValuePart
from pgflowd.core.documents.runs import Attempt, AttemptOutput, FailedAttempt, TaskProgress
from pgflowd.core.json import decode
from pgflowd.core.output_stream import read
from pgflowd.core.progress import Progress
from pgflowd.core.statuses import Outcome
from pgflowd.db.query import Query, Rows, only


def timeline(
    run_id: UUID,
    after: datetime | None = None,
    before: datetime | None = None,
    most: int | None = None,
) -> Query[list[RunEvent]]:
    """
    Return what happened in a run, in the order of time: `after` this moment, or at it, and
    `before` that one; the newest `most`, and what has the moment of the oldest of these.
    """

    def read(rows: Rows) -> list[RunEvent]:
        return list(starmap(RunEvent, ([*row[:6], decode(row[6])] for row in rows)))

    return Query(_TIMELINE, (run_id, after, before, most), read)


def event_page(run_id: UUID, before: datetime | None, most: int) -> Query[EventPage]:
    """Return the newest events of a run, or of those before a moment."""
    query = timeline(run_id, None, before, most)

    def read(rows: Rows) -> EventPage:
        events = query.read(rows)
        return EventPage(events, events[0].at if len(events) >= most else None)

    return Query(query.sql, query.params, read)


def list_actions(
    run_id: UUID | None = None,
    after: datetime | None = None,
    actor: str | None = None,
    most: int = 20,
) -> Query[list[PersonAction]]:
    """Return the newest things that people did, the newest first."""

    def read(rows: Rows) -> list[PersonAction]:
        return list(
            starmap(PersonAction, ([*row[:9], row[9] and decode(row[9]), row[10]] for row in rows))
        )

    return Query(_ACTIONS, (run_id, after, actor, most), read)


def dead_letters(
    flow_slug: str | None = None, since_s: float | None = None, most: int = 20
) -> Query[list[DeadLetter]]:
    """Return the tasks that failed for good, those of the newest runs first."""
    since = None if since_s is None else timedelta(seconds=since_s)
    return Query(_DEAD, (flow_slug, since, most), lambda rows: list(starmap(DeadLetter, rows)))


_TIMELINE = """
select at, event, step_slug, task_index, token, actor, detail::text
  from pgflowd.run_timeline(%s, %s, %s, %s)
"""
_ACTIONS = """
select action_id, at, actor, action, flow_slug, run_id, step_slug, task_index, reason, data,
       session_role
  from pgflowd.list_actions(%s, %s, %s, %s)
"""
_DEAD = """
select run_id, step_slug, task_index, flow_slug, attempts, token, outcome, error_type,
       error_message, failed_at
  from pgflowd.list_dead(%s, %s, %s)
"""


# attempts: how they ended, and what running ones have told


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


# a part of an input or output, so that a large one is not sent whole


MAX_MEMBERS = 200
MAX_BYTES = 64 * 1024


def value_part(
    run_id: UUID,
    step: str | None = None,
    task: int | None = None,
    what: Literal["input", "output"] = "output",
    path: Sequence[str] = (),
    start: int = 0,
    most: int = MAX_MEMBERS,
    max_bytes: int = MAX_BYTES,
) -> Query[ValuePart | None]:
    """
    Return what is at a path of a value of a run, of one of its steps, or of a task.

    `start` counts members, or the characters of a string. None: there is no such value.
    """

    def read(rows: Rows) -> ValuePart | None:
        if not rows:
            return None
        (_, kind, length, is_whole, value), *others = rows
        members = [ValueMember(*(*row[:4], decode(row[4]))) for row in others]
        return ValuePart(list(path), start, kind, length, is_whole, decode(value), members)

    params = (run_id, step, task, what, list(path), start, most, max_bytes)
    return Query(_VALUE_PART, params, read)


_VALUE_PART = """
select name, type, length, is_whole, value
  from pgflowd.value_part(%s, %s, %s, %s, %s::text[], %s, %s, %s)
"""


# traces


def trace_id(run_id: UUID) -> Query[str]:
    """Return the id of the trace of a run, also of one that was never traced."""
    return Query("select pgflowd.trace_id(%s)", (run_id,), only)
