"""
The pages: one function each, which reads the document that the page shows.

A document is of the type that the command prints; the API answers with its `to_json`. To add a
page, write its function and its template, and add it to `PAGES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import psycopg

from pgflowd.core.documents import versioned
from pgflowd.core.documents.flows import ListedFlow
from pgflowd.core.documents.runs import ListedRun
from pgflowd.db.flows import list_flows
from pgflowd.db.query import database_time, execute_together
from pgflowd.db.runs import list_runs

Connection = psycopg.Connection[Any]


class Document(Protocol):
    """What a page shows."""

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class PageRequest:
    """What a page is asked for; `query` has only names that the page knows."""

    conn: Connection
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A page, and the document below the same path of the API."""

    path: str
    template: str
    read: Callable[[PageRequest], Document]
    parameters: frozenset[str] = frozenset()  # that its address may have


@dataclass(frozen=True)
class Flows:
    """The flows, and when they were read."""

    flows: Sequence[ListedFlow]
    now: datetime

    def to_json(self) -> dict[str, Any]:
        return versioned({"flows": [flow.to_json(None) for flow in self.flows]})


@dataclass(frozen=True)
class Runs:
    """Some runs, the newest first, and when they were read."""

    runs: Sequence[ListedRun]
    now: datetime

    def to_json(self) -> dict[str, Any]:
        return versioned({"runs": [run.to_json() for run in self.runs]})


def overview(request: PageRequest) -> Flows:
    """What flows have to do."""
    return Flows(*execute_together(request.conn, [list_flows(), database_time()]))


def run_list(request: PageRequest) -> Runs:
    """The newest runs."""
    query = list_runs(request.query.get("flow"), most=_LISTED)
    return Runs(*execute_together(request.conn, [query, database_time()]))


_LISTED = 50

PAGES = (
    Page("/", "overview.html", overview),
    Page("/runs", "runs.html", run_list, frozenset({"flow"})),
)
