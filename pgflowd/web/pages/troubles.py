"""Tasks that need somebody: stalled ones, and those that failed for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgflowd.core.documents import Hidden
from pgflowd.core.documents.flows import StalledTasks
from pgflowd.core.documents.history import DeadLetter
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.settings.sections import RecoverySettings
from pgflowd.db.history import dead_letters
from pgflowd.db.query import execute
from pgflowd.db.run_search import flow_slugs
from pgflowd.db.waits import stalled_tasks
from pgflowd.web.pages.page import Page, PageRequest

LISTED = 50
STALE_S = RecoverySettings().stale_threshold_s


@dataclass(frozen=True)
class ShownDeadLetters:
    """The tasks that failed for good, those of the newest runs first."""

    tasks: Sequence[DeadLetter]
    flows: Hidden[Sequence[str]]


def stalled_list(request: PageRequest) -> StalledTasks:
    tasks = execute(request.conn, stalled_tasks(STALE_S))
    return StalledTasks(tasks)


def dead_list(request: PageRequest) -> ShownDeadLetters:
    flow, flows = request.word("flow"), flow_slugs(request.conn)
    if flow and flow not in flows:
        raise unknown_flow(flow, flows)
    query = dead_letters(flow, request.duration_s("since"), LISTED)
    tasks = execute(request.conn, query)
    return ShownDeadLetters(tasks, flows)


def _dead_command(request: PageRequest) -> list[str]:
    words = ["pgflowd", "dead", "list"]
    for name in ("flow", "since"):
        words += [f"--{name}", value] if (value := request.word(name)) else []
    return words


PAGES = (
    Page("/stalled", "stalled.html", stalled_list, lambda _: ["pgflowd", "stalled", "list"]),
    Page("/dead", "dead.html", dead_list, _dead_command, frozenset({"flow", "since"})),
)
