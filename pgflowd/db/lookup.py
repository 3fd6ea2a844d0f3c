"""
Finds the run that a word names, for commands and for addresses of pages.
"""

from __future__ import annotations

from uuid import UUID

from pgflowd.core.lookup import (
    UnclearWord,
    check_run_word,
    digits_of,
    flow_of_last,
    is_last,
    run_id_of,
    unknown_flow,
)
from pgflowd.db.flows import flow_names
from pgflowd.db.query import Query, SyncConnection, execute, only
from pgflowd.errors import AccessDenied, NotFound


def find_run(conn: SyncConnection, text: str) -> UUID:
    """The id of the run that a word names. A whole id is not looked up."""
    if whole := run_id_of(text):
        return whole
    check_run_word(text)
    if is_last(text):
        return _last_run(conn, flow_of_last(text))
    found = execute(conn, find_runs(digits_of(text).replace("-", ""), 3))
    if not found:
        raise NotFound(
            f"there is no run {text} among the newest 100,000",
            next="see `pgflowd runs list`, or give its whole id",
        )
    if len(found) > 1:
        ids = ", ".join(str(run_id) for run_id, _ in found)
        problem = f"'{text}' fits more than one run: {ids}; give more digits"
        raise UnclearWord(problem, code="E506")
    return found[0][0]


def _last_run(conn: SyncConnection, flow: str | None) -> UUID:
    if found := execute(conn, last_run(flow)):
        return found
    if flow is None:
        remedy = (
            "start one with `pgflowd runs start FLOW`; `pgflowd runs list` has those of schedules"
        )
        raise NotFound("there are no runs that somebody has started", next=remedy)
    known = flow_slugs(conn)
    if known and flow not in known:
        raise unknown_flow(flow, known)
    raise NotFound(f"{flow} has no runs", next=f"start one with `pgflowd runs start {flow}`")


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
