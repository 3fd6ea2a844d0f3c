"""
What every page has around its content: the time, and what the navigation says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pgflowd.core.documents.daemons import ListedDaemon, is_alone, silence
from pgflowd.db.daemons import list_daemons
from pgflowd.db.flows import overview_counts
from pgflowd.db.query import database_time, execute_together
from pgflowd.web.pages.page import Connection

MAX_PROBLEMS = 10  # that are shown above each page; the page of daemons has all


@dataclass(frozen=True)
class DaemonProblem:
    """Something that is wrong with a daemon of some machine."""

    daemon: ListedDaemon
    text: str
    code: str | None = None
    next: str | None = None
    flow: str | None = None


@dataclass(frozen=True)
class PageFrame:
    """It was read together with the document of the page."""

    now: datetime  # by the database's clock
    problems: Sequence[DaemonProblem] = ()
    counts: Mapping[str, int] = field(default_factory=dict)  # by the path of a page


def read_frame(conn: Connection) -> PageFrame:
    queries: list[Any] = [database_time(), list_daemons(only_problems=True), overview_counts()]
    now, daemons, found = execute_together(conn, queries)
    counts = {
        "/inbox": found.people + found.quarantined, "/stalled": found.stalled, "/dead": found.dead,
        "/daemons": sum(daemon.is_silent for daemon in daemons),
    }  # fmt: skip
    return PageFrame(now, list(problems_of(daemons)), counts)


def problems_of(daemons: Sequence[ListedDaemon]) -> Iterator[DaemonProblem]:
    """What is wrong with daemons; of one that is silent only that, since the rest is old."""
    alone = is_alone(daemons)
    for daemon in daemons:
        if daemon.is_silent:
            yield DaemonProblem(daemon, silence(daemon, is_alone=alone))
            continue
        for one in daemon.problems:
            yield DaemonProblem(daemon, **one)
