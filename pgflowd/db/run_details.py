"""
Reads all that is shown of a run: its steps and tasks, and what is new in it.

`RunEvents.read` is an operation. It reads the run, and the one that undoes it, and returns the
entries of their timelines that it has not returned before. So no event is lost when a notification
is, and none comes twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from pgflowd.core.documents.run_tasks import (
    MAX_FAMILY,
    StepTask,
    StepTasksPage,
    StripCell,
)
from pgflowd.core.documents.runs import (
    FailedAttempt,
    RunDetails,
    RunWithStates,
    TaskProgress,
    TimelineEntry,
)
from pgflowd.core.documents.waits import OpenTask
from pgflowd.core.lookup import refuse_unknown_step
from pgflowd.core.settings.values import TRACE_ID
from pgflowd.core.statuses import TaskStatus
from pgflowd.core.timeline import timeline_of, undo_timeline
from pgflowd.db import handler_requests, history, runs, waits
from pgflowd.db.history import trace_id
from pgflowd.db.operations import Operation, get_with_states
from pgflowd.db.query import Query, Rows, Together, columns_of, database_time, document_of
from pgflowd.db.waits import waits_of
from pgflowd.errors import AccessDenied

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
        "failures": history.failed_attempts(run_id),
        "now": database_time(),
        "waits": waits.waits_of(run_id, _MAX_LISTED),
        "unused": waits.list_signals(run_id, only_open=True, most=_MAX_LISTED),
    }
    if run.has_ended:
        queries["has_undos"] = runs.has_undos(run.flow_slug)
    if with_attempts:
        queries["attempts"] = history.attempts(run_id)
    if with_checkpoints:
        queries["checkpoints"] = waits.list_checkpoints(run_id)
    if with_family:
        queries["family"] = handler_requests.family(run_id, MAX_FAMILY)
    if trace_url:
        queries["trace_url"] = trace_id(run_id)
    if run.undo_run_id is not None:
        queries["undos"] = runs.run_undos(run_id)
        queries["undo"] = runs.get(run.undo_run_id)
    found: list[Any] = yield Together(list(queries.values()))
    details = {"attempts": None, **dict(zip(queries, found, strict=True))}
    if trace_url:
        details["trace_url"] = trace_url.replace(TRACE_ID, details["trace_url"])
    return RunDetails(run, **details)


# what is new, for all who follow a run


MAX_WAITS = 20  # tasks whose waits are told; of a map very many may wait
Details = tuple[list[FailedAttempt], list[OpenTask], list[TaskProgress]]


class RunEvents:
    """A run as it was read last, and which of its events are known."""

    def __init__(self, run_id: UUID, *, outputs: bool = True) -> None:
        self.run_id = run_id
        self._outputs = outputs
        self.run: RunWithStates | None = None  # None: it was not read yet
        self.undo: RunWithStates | None = None  # the run that undoes it, once that has begun
        self.timeline: Sequence[TimelineEntry] = ()  # all events, as they are now
        self._known: set[tuple[Any, ...]] = set()
        self._may_read_attempts = True

    @property
    def has_ended(self) -> bool:
        return self.run is not None and self.run.has_ended

    def read(self) -> Operation[list[TimelineEntry]]:
        """The events since the last call. NotFound for an unknown run."""
        run = yield from get_with_states(self.run_id)
        found = timeline_of(run, *(yield from self._details(self.run_id)))
        undo: RunWithStates | None = None
        if run.undo_wanted_at is not None and run.undo_run_id is not None:
            undo = yield runs.get_with_states(run.undo_run_id)
            failures, waits, _ = yield from self._details(run.undo_run_id)
            found += undo_timeline(run, undo, failures, waits)
        new = [entry for entry in found if entry.key not in self._known]
        self._known.update(entry.key for entry in new)
        # the last, since a connection may be lost before
        self.run, self.undo, self.timeline = run, undo, found
        return new if self._outputs else [replace(entry, output=None) for entry in new]

    def is_news(self, payload: str) -> bool:
        return True

    def _details(self, run_id: UUID) -> Operation[Details]:
        """Attempts that failed, tasks that wait, and what others tell of their progress; nothing if
        this role may only read runs."""
        if not self._may_read_attempts:
            return [], [], []
        queries: list[Query[Any]] = [
            history.failed_attempts(run_id),
            waits_of(run_id, MAX_WAITS),
            history.run_progress(run_id),
        ]
        try:
            failures, waits, progress = yield Together(queries)
        except AccessDenied:
            self._may_read_attempts = False
            return [], [], []
        return failures, waits, progress


# the tasks of one step: a page of them, and all as a strip


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
        tasks = [document_of(StepTask, row) for row in rows if row[0] is not None]
        return StepTasksPage(run_id, step, tasks, rows[0][-1])

    columns = columns_of(StepTask, task="task_index", error="error_message")
    sql = f"select {columns}, searched_to from pgflowd.run_tasks(%s, %s, %s, %s, %s)"
    return Query(sql, (run_id, step, list(statuses) or None, after, most), read)


def step_strip(run_id: UUID, step: str, cells: int = MAX_CELLS) -> Query[list[StripCell]]:
    """Return the tasks of a step, counted by status in at most so many cells."""

    def read(rows: Rows) -> list[StripCell]:
        counted = []
        for first, last, *counts in rows:
            found = zip(_COUNTED, counts, strict=True)
            counted.append(StripCell(first, last, {status: nr for status, nr in found if nr}))
        return counted

    return Query(_STRIP, (run_id, step, cells), read)


_COUNTED = (  # as the columns of the strip
    TaskStatus.QUEUED, TaskStatus.WAITING, TaskStatus.STARTED, TaskStatus.COMPLETED,
    TaskStatus.FAILED, TaskStatus.SKIPPED,
)  # fmt: skip
_STRIP = """
select first_index, last_index, queued, waiting, started, completed, failed, skipped
  from pgflowd.step_strip(%s, %s, %s)
"""
