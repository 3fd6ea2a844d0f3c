"""
Finds runs: lists them a page at a time, counts them, or finds the one that a word names; and lists
open tasks.

Each search limits how many runs it examines, and says how far it has looked. They need the rights
of a viewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pgflowd.core import lookup
from pgflowd.core.documents.runs import MAX_COUNTED, ListedRun, PageKey, RunCount, RunPage
from pgflowd.core.documents.waits import OpenTask
from pgflowd.core.run_filter import RunFilter
from pgflowd.core.wishes import labels_json
from pgflowd.db.flows import flow_names
from pgflowd.db.operations import Operation
from pgflowd.db.query import (
    MOMENT,
    Query,
    Rows,
    SyncConnection,
    columns_of,
    document,
    document_of,
    execute,
    only,
    uuid_of,
)
from pgflowd.db.runs import LISTED, listed_runs
from pgflowd.db.waits import list_tasks
from pgflowd.errors import AccessDenied, NotFound

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
