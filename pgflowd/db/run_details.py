"""
Finds runs: lists them a page at a time, counts them, or finds the one that a word names; and reads
all that is shown of a run: its steps and tasks, and what is new in it.

Each search limits how many runs it examines, and says how far it has looked. They need the rights
of a viewer.

`RunEvents.read` is an operation. It reads the run, and the one that undoes it, and returns the
entries of their timelines that it has not returned before. So no event is lost when a notification
is, and none comes twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from pgflowd.core import lookup
from pgflowd.core.documents.run_tasks import (
    MAX_FAMILY,
    OpenTask,
    StepTask,
    StepTasksPage,
    StripCell,
)
from pgflowd.core.documents.runs import (
    MAX_COUNTED,
    FailedAttempt,
    ListedRun,
    PageKey,
    RunCount,
    RunDetails,
    RunPage,
    RunWithStates,
    TaskProgress,
    TimelineEntry,
)
from pgflowd.core.lookup import refuse_unknown_step
from pgflowd.core.run_filter import RunFilter
from pgflowd.core.settings.values import TRACE_ID
from pgflowd.core.statuses import TaskStatus
from pgflowd.core.timeline import timeline_of, undo_timeline
from pgflowd.core.wishes import labels_json
from pgflowd.db import runs, waits, workers
from pgflowd.db.flows import flow_names
from pgflowd.db.operations import Operation, get_with_states
from pgflowd.db.query import (
    MOMENT,
    Query,
    Rows,
    SyncConnection,
    Together,
    columns_of,
    database_time,
    document,
    document_of,
    execute,
    only,
    uuid_of,
)
from pgflowd.db.runs import LISTED, listed_runs, trace_id
from pgflowd.db.waits import list_tasks, waits_of
from pgflowd.errors import AccessDenied, NotFound

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
        "failures": runs.failed_attempts(run_id),
        "now": database_time(),
        "waits": waits.waits_of(run_id, _MAX_LISTED),
        "unused": waits.list_signals(run_id, only_open=True, most=_MAX_LISTED),
    }
    if run.has_ended:
        queries["has_undos"] = runs.has_undos(run.flow_slug)
    if with_attempts:
        queries["attempts"] = runs.attempts(run_id)
    if with_checkpoints:
        queries["checkpoints"] = waits.list_checkpoints(run_id)
    if with_family:
        queries["family"] = workers.family(run_id, MAX_FAMILY)
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
            runs.failed_attempts(run_id),
            waits_of(run_id, MAX_WAITS),
            runs.run_progress(run_id),
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


MAX_SEEN = 20_000  # 15 ms, or 80 for a text; the dashboard looks no further at once


def find_page(
    wanted: RunFilter, most: int, after: PageKey | None, max_seen: int = MAX_SEEN
) -> Operation[RunPage]:
    """Return a page of the runs that fit. UnknownFlow, if there is no such flow."""
    page: RunPage = yield search_runs(wanted, most, after, max_seen)
    if not page.runs:
        yield from refuse_unknown_flow(wanted.flow)
    return page


def count(wanted: RunFilter, max_seen: int = MAX_SEEN) -> Operation[RunCount]:
    """Return how many runs fit. UnknownFlow, if there is no such flow."""
    counted: RunCount = yield count_runs(wanted, max_seen)
    if not counted.found:
        yield from refuse_unknown_flow(wanted.flow)
    return counted


def find_open_tasks(
    run_id: UUID | None,
    flow_slug: str | None,
    statuses: Sequence[str],
    needs: Sequence[str],
    most: int,
) -> Operation[list[OpenTask]]:
    """Return open tasks, the oldest first. UnknownFlow, if there is no such flow."""
    found: list[OpenTask] = yield list_tasks(run_id, flow_slug, statuses, most, needs)
    if not found:
        yield from refuse_unknown_flow(flow_slug)
    return found


def refuse_unknown_flow(flow_slug: str | None) -> Operation[None]:
    """Raise UnknownFlow, with the nearest slug, for a flow that the database does not have."""
    if flow_slug is not None:
        known: list[str] = yield flow_names()
        if flow_slug not in known:
            raise lookup.unknown_flow(flow_slug, known)


def search_runs(
    wanted: RunFilter, most: int = 50, after: PageKey | None = None, max_seen: int = MAX_SEEN
) -> Query[RunPage]:
    """Return a page of the newest runs that fit, those behind this key."""

    def read(rows: Rows) -> RunPage:
        runs = [document_of(ListedRun, row) for row in rows if row[0] is not None]
        seen, at, run_id = rows[0][-3:]
        return RunPage(runs, seen, None if at is None else PageKey(at, uuid_of(run_id)))

    place, more = after or (None, None), (wanted.input, wanted.key)
    return Query(_SEARCH, (*_params(wanted), *place, most, max_seen, *more), read)


def count_runs(wanted: RunFilter, max_seen: int = MAX_SEEN) -> Query[RunCount]:
    """Return how many runs fit, at most one more than `MAX_COUNTED`."""
    params = (*_params(wanted), MAX_COUNTED + 1, max_seen, wanted.input, wanted.key)
    return document(RunCount, _COUNT, params)


def runs_by_id(run_ids: Sequence[UUID]) -> Query[list[ListedRun]]:
    """Return these runs as lists show them, in this order, without those that do not exist."""
    return listed_runs("pgflowd.runs_by_id(%s)", (list(run_ids),))


def _params(wanted: RunFilter) -> Sequence[Any]:
    since, until = wanted.since, wanted.until
    return (wanted.flow, list(wanted.statuses) or None, since.at, since.in_s, until.at, until.in_s,
            labels_json(wanted.labels), wanted.text.strip() or None, wanted.with_undos)  # fmt: skip


_SEARCH = f"""
select {columns_of(ListedRun, **LISTED)}, seen, end_at, end_id
  from pgflowd.search_runs(%s, %s, {MOMENT}, {MOMENT}, %s::jsonb, %s, %s, %s, %s, %s, %s,
                           %s::jsonb, %s)
"""
_COUNT = f"""
pgflowd.count_runs(%s, %s, {MOMENT}, {MOMENT}, %s::jsonb, %s, %s, %s, %s, %s::jsonb, %s)
"""


def find_run(conn: SyncConnection, text: str) -> UUID:
    """The id of the run that a word names. A whole id is not looked up."""
    if whole := lookup.run_id_of(text):
        return whole
    lookup.check_run_word(text)
    if lookup.is_last(text):
        flow = lookup.flow_of_last(text)
        if last := execute(conn, last_run(flow)):
            return last
        if flow is None:
            remedy = "start one with `pgflowd runs start FLOW`;"
            remedy += " `pgflowd runs list` has those of schedules"
            raise NotFound("there are no runs that somebody has started", next=remedy)
        known = flow_slugs(conn)
        if known and flow not in known:
            raise lookup.unknown_flow(flow, known)
        raise NotFound(f"{flow} has no runs", next=f"start one with `pgflowd runs start {flow}`")
    found = execute(conn, find_runs(lookup.digits_of(text).replace("-", ""), 3))
    if not found:
        raise NotFound(
            f"there is no run {text} among the newest 100,000",
            next="see `pgflowd runs list`, or give its whole id",
        )
    if len(found) > 1:
        ids = ", ".join(str(run_id) for run_id, _ in found)
        problem = f"'{text}' fits more than one run: {ids}; give more digits"
        raise lookup.UnclearWord(problem, code="E506")
    return found[0][0]


def flow_slugs(conn: SyncConnection) -> list[str]:
    """The slugs of all flows in the database; none if the role may not read them."""
    try:
        return execute(conn, flow_names())
    except AccessDenied:
        return []


def find_runs(digits: str, most: int = 2) -> Query[list[tuple[UUID, str]]]:
    """Return id and flow of the runs whose id ends with these digits, newest first."""
    sql = "select run_id, flow_slug from pgflowd.find_runs(%s, %s)"
    return Query(sql, (digits, most), lambda rows: [(row[0], row[1]) for row in rows])


def last_run(flow_slug: str | None) -> Query[UUID | None]:
    """The newest run of a flow; without one the newest that somebody has started."""
    return Query("select pgflowd.last_run(%s)", (flow_slug,), only)
