"""
Reads what is new in a run, for all who follow one: the commands and both clients.

`RunEvents.read` is an operation. It reads the run, and the one that undoes it, and returns the
entries of their timelines that it has not returned before. So no event is lost when a notification
is, and none comes twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from pgflowd.core.documents.runs import FailedAttempt, RunWithStates, TaskProgress, TimelineEntry
from pgflowd.core.documents.waits import OpenTask
from pgflowd.core.timeline import timeline_of, undo_timeline
from pgflowd.db import attempts, runs
from pgflowd.db.operations import Operation, get_with_states
from pgflowd.db.query import Query, Together
from pgflowd.db.waits import waits_of
from pgflowd.errors import AccessDenied

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
            attempts.failed_attempts(run_id),
            waits_of(run_id, MAX_WAITS),
            attempts.run_progress(run_id),
        ]
        try:
            failures, waits, progress = yield Together(queries)
        except AccessDenied:
            self._may_read_attempts = False
            return [], [], []
        return failures, waits, progress
