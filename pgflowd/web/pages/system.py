"""
The daemons of all machines, what a look at the database finds, and what codes mean; what waits for
people, what they did, and tasks that are stalled or have failed for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pgflowd.core.documents import Hidden, Inline, documentation, shown
from pgflowd.core.documents.daemons import Daemons, ListedDaemon
from pgflowd.core.documents.documentation import Codes, ErrorPage
from pgflowd.core.documents.flows import StalledTasks
from pgflowd.core.documents.run_tasks import Actions, DeadLetter, ListedSignal, OpenTask, Signals
from pgflowd.core.finding import Findings, Section
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.settings.sections import RecoverySettings
from pgflowd.core.statuses import TaskStatus
from pgflowd.core.text import nearest
from pgflowd.db.daemons import list_daemons
from pgflowd.db.doctor import DoctorRequest, examine
from pgflowd.db.query import database_time
from pgflowd.db.run_details import flow_slugs
from pgflowd.db.runs import dead_letters, list_actions
from pgflowd.db.waits import inbox as waiting_tasks
from pgflowd.db.waits import list_signals, list_tasks, stalled_tasks
from pgflowd.errors import TITLES, NotFound, PgflowdError
from pgflowd.host.pages import error_page, error_texts
from pgflowd.web.pages.page import Page, PageRequest
from pgflowd.web.request_checks import OF_DASHBOARD


@dataclass(frozen=True)
class ShownDaemon:
    """One daemon."""

    daemon: Inline[ListedDaemon]
    silence: Hidden[str]


def daemon_list(request: PageRequest) -> Daemons:
    return Daemons(request.read(list_daemons()))


def daemon_page(request: PageRequest) -> ShownDaemon:
    """A daemon by its id."""
    wanted, found = request.path["daemon"], request.read(list_daemons())
    for daemon in found:
        if str(daemon.daemon_id) == wanted:
            return ShownDaemon(daemon, Daemons(found).silence(daemon))
    close = nearest(wanted, [str(each.daemon_id) for each in found])
    remedy = f"did you mean '{close}'?" if close else "rows are deleted after a day of silence"
    raise NotFound(f"there is no daemon {wanted}", next=remedy)


SECTIONS = (Section.DATABASE, Section.CONNECTIONS)


def database_page(request: PageRequest) -> Findings:
    return Findings([*examine(request.conn, DoctorRequest(), SECTIONS)])


MAX_WORDS_CHARS = 200


def codes(request: PageRequest) -> Codes:
    words = (request.word("words") or "")[:MAX_WORDS_CHARS]
    found = documentation.codes_with(error_texts(), words) if words else TITLES
    return Codes(documentation.listed_codes(found))


def explained(request: PageRequest) -> ErrorPage:
    """The page of a code."""
    code = request.path["code"].upper()
    if code not in TITLES:
        near = documentation.nearest_codes(code)
        listed = ", ".join(f"{each} ({TITLES[each]})" for each in near)
        remedy = f"the nearest are {listed}" if near else "the page /explain lists all codes"
        raise PgflowdError(f"there is no code {code[:60]}", code="E507", next=remedy)
    return error_page(code)


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
    Page("/daemons", "daemons.html", daemon_list, "daemons list"),
    Page("/daemons/{daemon}", "daemon.html", daemon_page, "daemons list"),
    Page("/database", "database.html", database_page, f"doctor {' '.join(SECTIONS)}"),
    Page(
        "/explain", "codes.html", codes,
        lambda request: ["explain", *(request.word("words") or "").split()],
        others=frozenset({"words"}), needs_database=False,
    ),
    Page(
        "/explain/{code}", "explain.html", explained,
        lambda request: ["explain", request.path["code"].upper()], needs_database=False,
    ),
)  # fmt: skip
