"""
The queries and operations that list runs a page at a time, and count them; and open tasks.

Each limits how many runs it examines, and says how far it has looked. They need the rights of a
viewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pgflowd.core.documents.runs import MAX_COUNTED, ListedRun, PageKey, RunCount, RunPage
from pgflowd.core.documents.waits import OpenTask
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.run_filter import RunFilter
from pgflowd.core.wishes import labels_json
from pgflowd.db.flows import flow_names
from pgflowd.db.operations import Operation
from pgflowd.db.query import Query, Rows, uuid_of
from pgflowd.db.runs import LISTED_COLUMNS, read_listed_run
from pgflowd.db.verbs import MOMENT
from pgflowd.db.waits import list_tasks

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
            raise unknown_flow(flow_slug, known)


def search_runs(
    wanted: RunFilter, most: int = 50, after: PageKey | None = None, max_seen: int = MAX_SEEN
) -> Query[RunPage]:
    """Return a page of the newest runs that fit, those behind this key."""

    def read(rows: Rows) -> RunPage:
        runs = [read_listed_run(row[:-3]) for row in rows if row[0] is not None]
        seen, at, run_id = rows[0][-3:]
        return RunPage(runs, seen, None if at is None else PageKey(at, uuid_of(run_id)))

    return Query(
        _SEARCH, (*_params(wanted), *(after or (None, None)), most, max_seen, *_more(wanted)), read
    )


def count_runs(wanted: RunFilter, max_seen: int = MAX_SEEN) -> Query[RunCount]:
    """Return how many runs fit, at most one more than `MAX_COUNTED`."""
    params = (*_params(wanted), MAX_COUNTED + 1, max_seen, *_more(wanted))
    return Query(_COUNT, params, lambda rows: RunCount(*rows[0]))


def runs_by_id(run_ids: Sequence[UUID]) -> Query[list[ListedRun]]:
    """Return these runs as lists show them, in this order, without those that do not exist."""
    return Query(_BY_ID, (list(run_ids),), lambda rows: list(map(read_listed_run, rows)))


def _params(wanted: RunFilter) -> Sequence[Any]:
    since, until = wanted.since, wanted.until
    return (wanted.flow, list(wanted.statuses) or None, since.at, since.in_s, until.at, until.in_s,
            labels_json(wanted.labels), wanted.text.strip() or None, wanted.with_undos)  # fmt: skip


def _more(wanted: RunFilter) -> Sequence[Any]:
    return wanted.input, wanted.key


_SEARCH = f"""
select {LISTED_COLUMNS}, seen, end_at, end_id
  from pgflowd.search_runs(%s, %s, {MOMENT}, {MOMENT}, %s::jsonb, %s, %s, %s, %s, %s, %s,
                           %s::jsonb, %s)
"""
_COUNT = f"""
select found, seen, searched_to
  from pgflowd.count_runs(%s, %s, {MOMENT}, {MOMENT}, %s::jsonb, %s, %s, %s, %s,
                          %s::jsonb, %s)
"""
_BY_ID = f"select {LISTED_COLUMNS} from pgflowd.runs_by_id(%s)"
