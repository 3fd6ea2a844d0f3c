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
from pgflowd.core.traces import EndedAttempt, EndedPart
from pgflowd.db.query import Query, Rows, document_of, documents, only


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

    source, params = "pgflowd.run_timeline(%s, %s, %s, %s)", (run_id, after, before, most)
    return documents(RunEvent, source, params, **_PLACE, detail="detail::text")


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
    source, params = "pgflowd.list_actions(%s, %s, %s, %s)", (run_id, after, actor, most)
    return documents(PersonAction, source, params, **_PLACE, flow="flow_slug")


def dead_letters(
    flow_slug: str | None = None, since_s: float | None = None, most: int = 20
) -> Query[list[DeadLetter]]:
    """Return the tasks that failed for good, those of the newest runs first."""
    since = None if since_s is None else timedelta(seconds=since_s)
    source, params = "pgflowd.list_dead(%s, %s, %s)", (flow_slug, since, most)
    return documents(DeadLetter, source, params, **_PLACE, flow="flow_slug", error="error_message")


# attempts: how they ended, and what running ones have told


def run_progress(run_id: UUID) -> Query[list[TaskProgress]]:
    """Return what running tasks of a run have told of their progress."""
    told = documents(TaskProgress, "pgflowd.run_progress(%s)", (run_id,))
    return replace(told, read=lambda rows: [one for one in told.read(rows) if one.progress])


def failed_attempts(
    run_id: UUID,
    most: int = 1000,
    before: FailedAttempt | None = None,
) -> Query[list[FailedAttempt]]:
    """
    Return the newest attempts of a run that ended without an output, oldest first.

    With `before` those that ended before that one.
    """
    end = (before.ended_at, before.token) if before else (None, None)
    source, params = "pgflowd.run_troubles(%s, %s, %s, %s, %s)", (run_id, None, most, *end)
    return documents(FailedAttempt, source, params, **_KEPT)


def attempts(run_id: UUID) -> Query[list[Attempt]]:
    """Return all attempts of a run that are kept, oldest first."""
    return _attempts("run_id = %s order by token", (run_id,))


def task_attempts(run_id: UUID, step: str, task: int, most: int) -> Query[list[Attempt]]:
    """Return the newest attempts of a task that are kept, the newest first."""
    chosen = """
    run_id = %s and step_slug = %s and task_index = %s order by attempt desc, token desc limit %s
    """
    return _attempts(chosen, (run_id, step, task, most))


def _attempts(chosen: str, params: Sequence[Any]) -> Query[list[Attempt]]:
    columns = {**_PLACE, **_KEPT, "progress": "progress::text"}
    return documents(Attempt, f"pgflowd.attempt_history where {chosen}", params, **columns)


def kept_output(
    run_id: UUID, step: str | None, task: int | None, attempt: int | None, most: int
) -> Query[list[AttemptOutput]]:
    """Return what is kept of the output of the newest attempts of a run, step or task."""

    def one(*row: Any) -> AttemptOutput:
        lines, is_cut = (None, False) if row[-1] is None else read(row[-1])
        return document_of(AttemptOutput, (*row[:-1], lines, is_cut))

    params = (run_id, step, task, attempt, most)
    return Query(_KEPT_OUTPUT, params, lambda rows: list(starmap(one, rows)))


_PLACE = {"step": "step_slug", "task": "task_index"}  # the columns of these fields
_KEPT = {"error": "error_message", "output_lines": "printed_lines"}
_KEPT_OUTPUT = """
select step_slug, task_index, token, attempt, outcome, started_at, ended_at, printed
  from pgflowd.kept_output(%s, %s, %s, %s, %s)
"""


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
        members = [document_of(ValueMember, row) for row in others]
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


def export_attempts(most: int) -> Query[list[EndedAttempt]]:
    """Return attempts that have ended, and move the cursor of exports past them; none while
    another daemon exports. In a transaction, which is committed once they are exported."""

    def read(rows: Rows) -> list[EndedAttempt]:
        made = ((*row[:-2], row[-2] and decode(row[-2]), row[-1]) for row in rows)
        return [EndedAttempt._make(row) for row in made]

    return Query(_EXPORT_ATTEMPTS, (most,), read)


def export_runs(run_ids: Sequence[str], most: int) -> Query[list[EndedPart]]:
    """Return these runs that have ended, and some that no report has ended, with their steps: each
    run before its steps. In the transaction of `export_attempts`."""

    def read(rows: Rows) -> list[EndedPart]:
        return [EndedPart._make((*row[:-1], row[-1] and decode(row[-1]))) for row in rows]

    return Query(_EXPORT_RUNS, (list(run_ids), most), read)


_EXPORT_ATTEMPTS = """
select run_id::text, step_slug, task_index, token, flow_slug, attempt, began_us, ended_us, outcome,
       error_type, error_message, exit_code, exit_signal, cpu_s, peak_kb, trace, ends_run
  from pgflowd.export_attempts(%s)
"""
_EXPORT_RUNS = """
select run_id::text, flow_slug, step_slug, status, error, began_us, ended_us, deps, trace
  from pgflowd.export_runs(%s::uuid[], %s) order by run_id, step_slug nulls first
"""
