"""What waits for people, the signals that were sent, and what people did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pgflowd.core.documents import Hidden, shown
from pgflowd.core.documents.history import Actions
from pgflowd.core.documents.waits import ListedSignal, OpenTask, Signals
from pgflowd.core.statuses import TaskStatus
from pgflowd.db import waits
from pgflowd.db.history import list_actions
from pgflowd.db.query import database_time, execute, execute_together
from pgflowd.db.run_search import find_run
from pgflowd.db.waits import list_signals, list_tasks
from pgflowd.web.pages.page import Page, PageRequest
from pgflowd.web.request_checks import OF_DASHBOARD

MAX_WAITS = 200
MAX_AT_WORK = 1000
MAX_SIGNALS = 20
MAX_ACTIONS = 100


@dataclass(frozen=True)
class ShownInbox:
    """Tasks that wait for somebody, those that are at work, and the newest signals."""

    waiting: Hidden[Sequence[OpenTask]]
    at_work: Hidden[Sequence[OpenTask]]
    signals: Hidden[Sequence[ListedSignal]]

    @property
    @shown
    def tasks(self) -> list[OpenTask]:
        """Those that somebody has claimed here, and those that wait for somebody."""
        held = [task for task in self.at_work if (task.worker or "").endswith(OF_DASHBOARD)]
        return [*held, *self.waiting]


def inbox(request: PageRequest) -> ShownInbox:
    queries: list[Any] = [
        waits.inbox(MAX_WAITS),
        list_tasks(statuses=[TaskStatus.LEASED], most=MAX_AT_WORK),
        list_signals(most=MAX_SIGNALS),
    ]  # fmt: skip
    return ShownInbox(*execute_together(request.conn, queries))


def signals(request: PageRequest) -> Signals:
    run = request.word("run")
    run_id = None if run is None else find_run(request.conn, run)
    found = execute(request.conn, list_signals(run_id, most=MAX_ACTIONS))
    return Signals(found)


def actions(request: PageRequest) -> Actions:
    """What was done: to a run, by somebody, within a time."""
    run, since_s = request.word("run"), request.duration_s("since")
    run_id = None if run is None else find_run(request.conn, run)
    first = None
    if since_s is not None:
        first = execute(request.conn, database_time()) - timedelta(seconds=since_s)
    query = list_actions(run_id, first, request.word("actor"), MAX_ACTIONS)
    found = execute(request.conn, query)
    return Actions(found)


def _actions_command(request: PageRequest) -> list[str]:
    words = ["pgflowd", "log", "--actions"]
    for name in ("run", "actor", "since"):
        words += [f"--{name}", value] if (value := request.word(name)) else []
    return words


def _signals_command(request: PageRequest) -> list[str]:
    run = request.word("run")
    return ["pgflowd", "signals", "list", *(["--run", run] if run else [])]


PAGES = (
    Page(
        "/inbox", "inbox.html", inbox,
        lambda _: ["pgflowd", "tasks", "list", "--status", "waiting"],
    ),
    Page("/signals", "signals.html", signals, _signals_command, frozenset({"run"})),
    Page(
        "/actions", "actions.html", actions, _actions_command, frozenset({"run", "actor", "since"})
    ),
)  # fmt: skip
