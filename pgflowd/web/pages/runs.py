"""The list of runs. Its filter is its address."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from pgflowd.core.documents import versioned
from pgflowd.core.documents.runs import ListedRun
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.statuses import RunStatus
from pgflowd.core.wishes import labels_json
from pgflowd.db.lookup import flow_slugs
from pgflowd.db.query import execute
from pgflowd.db.run_search import runs_by_id
from pgflowd.db.runs import list_runs
from pgflowd.web.pages.page import Connection, Page, PageRequest, refused

LISTED = 50
STATUSES = tuple(map(str, RunStatus))
_ROW = "run-"  # begins the id of a row's fragment
SINCE = ("1h", "24h", "7d", "30d")  # that the form offers; the address may have any


@dataclass(frozen=True)
class Runs:
    """Some runs, the newest first; and what the form offers."""

    runs: Sequence[ListedRun]
    flows: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        return versioned({"runs": [run.to_json() for run in self.runs]})


def run_list(request: PageRequest) -> Runs:
    """The newest runs that the address asks for."""
    flow, status = request.word("flow"), request.one_of("status", STATUSES)
    labels, since_s = _labels(request), request.duration_s("since")
    statuses = [status] if status else []
    query = list_runs(flow, statuses, since_s, LISTED, labels_json(labels))
    found, flows = execute(request.conn, query), flow_slugs(request.conn)
    if flow and not found and flow not in flows:
        raise unknown_flow(flow, flows)
    return Runs(found, flows)


def with_rows(
    conn: Connection, document: Runs, shown: Collection[str]
) -> tuple[Runs, Collection[str]]:
    """The list with other runs that somebody sees, since they do not fit its filter any more."""
    here, others = {run.run_id for run in document.runs}, set()
    for row in shown:
        with suppress(ValueError):
            others.add(UUID(row.removeprefix(_ROW)))
    others -= here
    if not others:
        return document, ()
    found = execute(conn, runs_by_id(sorted(others)))
    more = replace(document, runs=[*document.runs, *found])
    return more, [f"{_ROW}{run.run_id}" for run in found]


def _labels(request: PageRequest) -> dict[str, str]:
    if (text := request.word("label")) is None:
        return {}
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise refused("label", text, "NAME=VALUE")
    return {name: value}


def _command(request: PageRequest) -> list[str]:
    words = ["pgflowd", "runs", "list"]
    for name in ("flow", "status", "label", "since"):
        if value := request.word(name):
            words += [f"--{name}", value]
    return words


PAGES = (
    Page(
        "/runs",
        "runs.html",
        run_list,
        _command,
        frozenset({"flow", "status", "label", "since"}),
        with_rows=with_rows,
    ),
)
