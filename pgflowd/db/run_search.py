"""
The queries that list runs a page at a time, and count them.

Each limits how many runs it examines, and says how far it has looked. They need the rights of a
viewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pgflowd.core.documents.run_list import MAX_COUNTED, PageKey, RunCount, RunPage
from pgflowd.core.documents.runs import ListedRun
from pgflowd.core.run_filter import RunFilter
from pgflowd.core.wishes import labels_json
from pgflowd.db.query import Query, Rows
from pgflowd.db.runs import LISTED_COLUMNS, MOMENT, read_listed_run

MAX_SEEN = 20_000  # 15 ms, or 80 for a text; the dashboard looks no further at once


def search_runs(
    wanted: RunFilter, most: int = 50, after: PageKey | None = None, max_seen: int = MAX_SEEN
) -> Query[RunPage]:
    """Return a page of the newest runs that fit, those behind this key."""

    def read(rows: Rows) -> RunPage:
        runs = [read_listed_run(row[:-3]) for row in rows if row[0] is not None]
        seen, at, run_id = rows[0][-3:]
        return RunPage(runs, seen, None if at is None else PageKey(at, run_id))

    return Query(_SEARCH, (*_params(wanted), *(after or (None, None)), most, max_seen), read)


def count_runs(wanted: RunFilter, max_seen: int = MAX_SEEN) -> Query[RunCount]:
    """Return how many runs fit, at most one more than `MAX_COUNTED`."""
    params = (*_params(wanted), MAX_COUNTED + 1, max_seen)
    return Query(_COUNT, params, lambda rows: RunCount(*rows[0]))


def runs_by_id(run_ids: Sequence[UUID]) -> Query[list[ListedRun]]:
    """Return these runs as lists show them, in this order, without those that do not exist."""
    return Query(_BY_ID, (list(run_ids),), lambda rows: list(map(read_listed_run, rows)))


def _params(wanted: RunFilter) -> Sequence[Any]:
    since, until = wanted.since, wanted.until
    return (wanted.flow, list(wanted.statuses) or None, since.at, since.in_s, until.at, until.in_s,
            labels_json(wanted.labels), wanted.text.strip() or None, wanted.with_undos)  # fmt: skip


_SEARCH = f"""
select {LISTED_COLUMNS}, seen, end_at, end_id
  from pgflowd.search_runs(%s, %s, {MOMENT}, {MOMENT}, %s::jsonb, %s, %s, %s, %s, %s, %s)
"""
_COUNT = f"""
select found, seen, searched_to
  from pgflowd.count_runs(%s, %s, {MOMENT}, {MOMENT}, %s::jsonb, %s, %s, %s, %s)
"""
_BY_ID = f"select {LISTED_COLUMNS} from pgflowd.runs_by_id(%s)"
