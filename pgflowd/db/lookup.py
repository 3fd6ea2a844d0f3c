"""
Finds the run that a word names, for commands and for addresses of pages.
"""

from __future__ import annotations

from uuid import UUID

from pgflowd.core.lookup import LAST, UnclearWord, check_run_word, digits_of, run_id_of
from pgflowd.db import runs
from pgflowd.db.flows import flow_names
from pgflowd.db.query import SyncConnection, execute
from pgflowd.errors import AccessDenied, NotFound


def find_run(conn: SyncConnection, text: str) -> UUID:
    """The id of the run that a word names. A whole id is not looked up."""
    if whole := run_id_of(text):
        return whole
    check_run_word(text)
    digits = "" if text == LAST else digits_of(text).replace("-", "")
    found = execute(conn, runs.find_runs(digits, 3))
    if not found and text == LAST:
        raise NotFound("there are no runs", next="start one with `pgflowd runs start FLOW`")
    if not found:
        raise NotFound(
            f"there is no run {text} among the newest 100,000",
            next="see `pgflowd runs list`, or give its whole id",
        )
    if len(found) > 1 and text != LAST:
        ids = ", ".join(str(run_id) for run_id, _ in found)
        problem = f"'{text}' fits more than one run: {ids}; give more digits"
        raise UnclearWord(problem, code="E506")
    return found[0][0]


def flow_slugs(conn: SyncConnection) -> list[str]:
    """The slugs of all flows in the database; none if the role may not read them."""
    try:
        return execute(conn, flow_names())
    except AccessDenied:
        return []
