"""The list of runs. Its filter is its address."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID

from pgflowd.core.documents import Hidden, Inline
from pgflowd.core.documents.runs import PageKey, RunPage
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.run_filter import RunFilter
from pgflowd.core.statuses import RunStatus
from pgflowd.db.query import execute, execute_together
from pgflowd.db.run_search import count_runs, flow_slugs, runs_by_id, search_runs
from pgflowd.web.pages.page import Connection, Page, PageRequest, refused

LISTED = 50
STATUSES = tuple(map(str, RunStatus))
_ROW = "run-"  # begins the id of a row's fragment
MAX_TEXT_CHARS = 200  # of what is searched for
_FILTER = ("flow", "status", "label", "since", "until", "text")


@dataclass(frozen=True)
class ShownRuns:
    """A page of the list of runs; and what the form offers."""

    page: Inline[RunPage]
    flows: Hidden[Sequence[str]]
    wanted: Hidden[RunFilter]


def run_list(request: PageRequest) -> ShownRuns:
    """A page of the runs that the address asks for; the first one with their number."""
    wanted, after = filter_of(request), _after(request)
    flows = flow_slugs(request.conn)
    if wanted.flow and wanted.flow not in flows:
        raise unknown_flow(wanted.flow, flows)
    search = search_runs(wanted, LISTED, after)
    if after is not None or wanted.is_empty:
        return ShownRuns(execute(request.conn, search), flows, wanted)
    page, count = execute_together(request.conn, [search, count_runs(wanted)])
    return ShownRuns(replace(page, count=count), flows, wanted)


def filter_of(request: PageRequest) -> RunFilter:
    """The filter that an address has."""
    return RunFilter(
        flow=request.word("flow"),
        statuses=tuple(request.some_of("status", STATUSES)),
        since=request.moment("since"),
        until=request.moment("until"),
        labels=_labels(request),
        text=(request.word("text") or "")[:MAX_TEXT_CHARS],
    )


def _after(request: PageRequest) -> PageKey | None:
    if (text := request.word("after")) is None:
        return None
    try:
        return PageKey.read(text)
    except ValueError:
        raise refused("after", text, "the `next` of the page before") from None


def with_rows(
    conn: Connection, document: ShownRuns, shown: Collection[str]
) -> tuple[ShownRuns, Collection[str]]:
    """The list with other runs that somebody sees, since they do not fit its filter any more."""
    here, others = {run.run_id for run in document.page.runs}, set()
    for row in shown:
        with suppress(ValueError):
            others.add(UUID(row.removeprefix(_ROW)))
    others -= here
    if not others:
        return document, ()
    found = execute(conn, runs_by_id(sorted(others)))
    more = replace(document, page=replace(document.page, runs=[*document.page.runs, *found]))
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
    for name in (*_FILTER, "after"):
        values = (request.word(name) or "").split(",") if name == "status" else [request.word(name)]
        words += [word for value in values if value for word in (f"--{name}", value)]
    return words


PAGES = (
    Page(
        "/runs", "runs.html", run_list, _command, frozenset({*_FILTER, "after"}),
        lists=frozenset({"status"}), with_rows=with_rows,
    ),
)  # fmt: skip
