"""What waits for people, what they did, and tasks that are stalled or have failed for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pgflowd.core.documents import Hidden, shown
from pgflowd.core.documents.flows import StalledTasks
from pgflowd.core.documents.history import Actions, DeadLetter
from pgflowd.core.documents.waits import ListedSignal, OpenTask, Signals
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.settings.sections import RecoverySettings
from pgflowd.core.statuses import TaskStatus
from pgflowd.db.history import dead_letters, list_actions
from pgflowd.db.query import database_time
from pgflowd.db.run_search import flow_slugs
from pgflowd.db.waits import inbox as waiting_tasks
from pgflowd.db.waits import list_signals, list_tasks, stalled_tasks
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
    at_work = list_tasks(statuses=[TaskStatus.LEASED], most=MAX_AT_WORK)
    newest = list_signals(most=MAX_SIGNALS)
    return ShownInbox(*request.read_all(waiting_tasks(MAX_WAITS), at_work, newest))


def signals(request: PageRequest) -> Signals:
    return Signals(request.read(list_signals(request.run_of_query(), most=MAX_ACTIONS)))


def actions(request: PageRequest) -> Actions:
    """What was done: to a run, by somebody, within a time."""
    run_id, since_s, first = request.run_of_query(), request.duration_s("since"), None
    if since_s is not None:
        first = request.read(database_time()) - timedelta(seconds=since_s)
    query = list_actions(run_id, first, request.word("actor"), MAX_ACTIONS)
    return Actions(request.read(query))


LISTED = 50
STALE_S = RecoverySettings().stale_threshold_s


@dataclass(frozen=True)
class ShownDeadLetters:
    """The tasks that failed for good, those of the newest runs first."""

    tasks: Sequence[DeadLetter]
    flows: Hidden[Sequence[str]]


def stalled_list(request: PageRequest) -> StalledTasks:
    return StalledTasks(request.read(stalled_tasks(STALE_S)))


def dead_list(request: PageRequest) -> ShownDeadLetters:
    flow, flows = request.word("flow"), flow_slugs(request.conn)
    if flow and flow not in flows:
        raise unknown_flow(flow, flows)
    query = dead_letters(flow, request.duration_s("since"), LISTED)
    return ShownDeadLetters(request.read(query), flows)


PAGES = (
    Page("/inbox", "inbox.html", inbox, "tasks list --status waiting"),
    Page("/signals", "signals.html", signals, "signals list", ("run",)),
    Page("/actions", "actions.html", actions, "log --actions", ("run", "actor", "since")),
    Page("/stalled", "stalled.html", stalled_list, "stalled list"),
    Page("/dead", "dead.html", dead_list, "dead list", ("flow", "since")),
)
