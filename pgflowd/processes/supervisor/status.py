"""
The state of the daemon as a status document and as metrics, and for the service manager.

Counters continue when a child is replaced: the counts of its earlier processes are kept.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pgflowd import __version__
from pgflowd.core.documents import encoded, versioned
from pgflowd.core.documents.daemon_status import (
    ChildFacts,
    DaemonFacts,
    is_cut_off,
    is_sound,
    problems_of_children,
    state_of,
    status_of,
)
from pgflowd.core.documents.daemons import StatusProblem
from pgflowd.core.json import Encoder
from pgflowd.core.messages import StatusPart, parts_of
from pgflowd.core.metrics.definitions import LOG_RECORDS_DROPPED, added, counters_of
from pgflowd.core.settings.sections import WorkerSettings
from pgflowd.core.statuses import ChildState, DaemonState
from pgflowd.core.supervision.kinds import SWEEPER
from pgflowd.core.supervision.reload import is_over, on_reload, reloaded_flows
from pgflowd.core.supervision.transition import ReportReload
from pgflowd.core.supervision.tree import Announcement, DaemonPhase
from pgflowd.errors import Problem
from pgflowd.host.control import ControlClient, ControlSocket, SocketInUse, SocketPathError
from pgflowd.host.systemd import Notifier
from pgflowd.processes.supervisor.children import ChildProcess

if TYPE_CHECKING:
    from pgflowd.processes.supervisor.loop import SupervisorLoop


_dumps = Encoder(default=str)
_OF_SLEEPING = ("import_s", "problems")  # the numbers that are true of a sleeping worker
STOPPING = {"error": "the daemon is stopping", "code": "E411"}  # to who waits for a reload
LATE_MIN_S = 10.0  # before a waiting task is a problem: a worker sends its numbers every 5 s


class StatusReporter:
    """What the supervisor has counted, and the problems of the last reload."""

    def __init__(self, supervisor: SupervisorLoop) -> None:
        self._id = uuid4()
        self._started, self._began = time.time(), time.monotonic()
        self.warnings: list[Problem] = []  # of the last reload, until the next
        self.answer: list[Problem] = []  # the same and all errors, for the answer
        self.restarts = defaultdict[str, Counter[str]](Counter)  # by child, and kind of reason
        self.reloads: Counter[str] = Counter()
        self._supervisor = supervisor
        self._counters: dict[str, dict[str, Any]] = {}
        self._last_numbers: dict[str, dict[str, Any]] = {}  # of each child's last process

    @property
    def up_s(self) -> float:
        """Return how long the daemon has run."""
        return time.monotonic() - self._began

    def document(self) -> dict[str, Any]:
        return versioned(status_of(self._supervisor.tree, self._facts()))

    def send_to(self, sweeper: ChildProcess) -> None:
        """Send the document to the sweeper, which writes it into the database."""
        parts = parts_of(_dumps(self.document()))
        for number, part in enumerate(parts, start=1):
            is_last = number == len(parts)
            self._supervisor.children.send(sweeper, StatusPart(part, is_last=is_last))

    def state(self) -> DaemonState:
        """The daemon's state in one word, as the document has it."""
        tree = self._supervisor.tree
        return state_of(tree, is_sound=is_sound(problems_of_children(tree, self._facts())))

    def metrics(self) -> dict[str, Any]:
        """What `core.metrics.exposition` renders; not here, since the loop must not wait for it."""
        counters = {id: dict(kept) for id, kept in self._counters.items()}
        children = self._supervisor.children
        for process in [*children.alive.values(), *children.ended]:
            counted = added(counters.get(process.id, {}), counters_of(process.numbers))
            counters[process.id] = counted
        counters["supervisor"] = {LOG_RECORDS_DROPPED.key: self._supervisor.log.lost}
        sweeper = children.alive.get(SWEEPER.child_id())
        unserved = sweeper.numbers.get("unserved", {}) if sweeper else {}
        own = {"restarts": self.restarts, "reloads": self.reloads, "unserved": unserved}
        return {"status": self.document(), "counters": counters, "own": own}

    def keep_numbers(self, process: ChildProcess) -> None:
        """Keep the counts of an ended process, and what is told of a sleeping one."""
        numbers = process.numbers
        self._last_numbers[process.id] = {key: numbers.get(key) for key in _OF_SLEEPING}
        counted = counters_of(process.numbers)
        self._counters[process.id] = added(self._counters.get(process.id, {}), counted)

    def _facts(self) -> DaemonFacts:
        settings, served = self._supervisor.settings, self._supervisor.served
        children = {
            child.id: ChildFacts(
                max_concurrency=settings.worker_for(served[child.id].name).max_concurrency,
                numbers=self._last_numbers.get(child.id, {}),
            )
            for child in self._supervisor.tree.workers
            if child.state is ChildState.ASLEEP
        }
        for id, process in self._supervisor.children.alive.items():
            worker = settings.worker_for(process.served.name) if process.served else None
            children[id] = ChildFacts(
                pid=process.pid,
                started_at=process.started_at,
                worker_id=process.worker_id,
                max_concurrency=worker.max_concurrency if worker else None,
                late_s=_late_s(worker) if worker else None,
                heard_at=process.heard_at,
                numbers=process.numbers,
            )
        return DaemonFacts(
            self._id,
            settings.pgflowd.name,
            socket.gethostname(),
            __version__,
            os.getpid(),
            self._started,
            self._began,
            time.time(),
            time.monotonic(),
            children,
            [
                StatusProblem(code=one.code, flow=None, text=one.text, next=one.next)
                for one in self.warnings
            ],
            self._supervisor.reloader.old_versions,
        )


def _late_s(worker: WorkerSettings) -> float:
    """After how long a task that waits while runners are free is a problem."""
    is_polling = worker.signal_strategy == "polling"
    return max(LATE_MIN_S, worker.poll_max_s if is_polling else worker.notify_fallback_s)


# Notifies the service manager.
#
# It sends the status, extends the time limit while the daemon starts or stops, and feeds the
# watchdog once per round of the loop, which has just checked every child
# (docs/background/supervision.md, rule 48). It decides nothing and never waits.
EXTEND_INTERVAL_S = 5.0  # well within the extension
EXTENSION_S = 20.0  # that each message asks of the service manager
CHECK_S = 1.0  # while the daemon starts or stops; its status changes often
REST_S = 5.0  # otherwise: with hundreds of flows it takes some milliseconds


class ServiceManager:
    """The service manager, as the supervisor uses it."""

    def __init__(self, supervisor: SupervisorLoop) -> None:
        self._supervisor = supervisor
        self.notifier = Notifier()
        self._feed_at = 0.0
        self._extend_at = 0.0
        self._summary_at = 0.0
        self._last_summary = ""

    @property
    def due(self) -> float | None:
        """When the service manager needs the next message."""
        moments = [self._feed_at] if self.notifier.watchdog_s is not None else []
        if self._is_busy():
            moments.append(time.monotonic() + CHECK_S)
        return min(moments, default=None)

    def tick(self, now: float) -> None:
        """Send what is due; the loop has just checked every child."""
        self.notifier.flush()
        watchdog_s = self.notifier.watchdog_s
        if watchdog_s is not None and self._feed_at <= now:
            self.notifier.alive()
            self._feed_at = now + watchdog_s / 3
        if self._is_busy() and self._extend_at <= now:
            self.notifier.extend(EXTENSION_S)
            self._extend_at = now + EXTEND_INTERVAL_S
        if self.notifier.is_heard and self._summary_at <= now:
            self._summary_at = now + (CHECK_S if self._is_busy() else REST_S)
            summary = self._summary()
            if summary != self._last_summary:
                self._last_summary = summary
                self.notifier.status(summary)

    def announce(self, what: Announcement) -> None:
        """Report, to the log too, that the daemon is ready or ends."""
        self._extend_at = 0.0
        log = self._supervisor.log
        if what is Announcement.READY:
            log.info("supervisor.ready", took_s=self._supervisor.status.up_s)
            self.notifier.ready(self._summary())
            return
        log.info(f"supervisor.{what.value}")
        self.notifier.stopping(what.value)
        self._supervisor.control.answer_all_reloads(STOPPING)

    def on_reloaded(self) -> None:
        """A reload is over, done or refused."""
        if self._supervisor.tree.was_ready:
            self.notifier.ready(self._summary())

    def _is_busy(self) -> bool:
        """Whether the service manager waits for a start, a stop or a reload."""
        tree = self._supervisor.tree
        reloads = self._supervisor.control.awaits_reload
        return not tree.was_ready or tree.phase is DaemonPhase.STOPPING or reloads

    def _summary(self) -> str:
        tree = self._supervisor.tree
        alive = self._supervisor.children.alive.values()
        cut_off = is_cut_off(process.numbers for process in alive)
        state = self._supervisor.status.state()
        if cut_off or any(child.waiting_for for child in tree.children):
            return f"{state}: waiting for the database"
        up = sum(child.state is ChildState.UP for child in tree.workers)
        asleep = sum(child.state is ChildState.ASLEEP for child in tree.workers)
        others = f", {asleep} asleep" if asleep else ""
        return f"{state}: {up} of {len(tree.workers)} workers up{others}"


# The supervisor's end of the control socket.
#
# It answers the fixed set of commands (`host.control.COMMANDS`). A reload is answered when it was
# refused, or when its drains and starts have ended; every other command at once. No client can
# block the loop.
class ControlServer:
    """The clients, and those that wait for a reload."""

    def __init__(self, supervisor: SupervisorLoop, socket: ControlSocket) -> None:
        self.socket = socket
        self._supervisor = supervisor
        self._is_lost = False  # somebody else has its path, as the log says
        self._waiting: list[ControlClient] = []  # for a reload to begin
        self._reloading: list[ControlClient] = []  # for the answer to the one that goes on
        self._report: ReportReload | None = None  # of the one that was applied last
        socket.attend(supervisor.selector, self._serve)

    def keep_socket(self) -> None:
        """Make the socket again if it was removed."""
        if self.socket.place.is_intact:
            return
        try:
            self.socket.renew()
        except (SocketInUse, SocketPathError) as error:
            why = f"another daemon has {error}" if isinstance(error, SocketInUse) else str(error)
            if not self._is_lost:
                self._supervisor.log.error("control.lost", error=f"no command gets here: {why}")
            self._is_lost = True
        else:
            text = f"{self.socket.path} was removed, and is made again"
            self._supervisor.log.warning("control.renewed", error=text)
            self._is_lost = False

    @property
    def awaits_reload(self) -> bool:
        return bool(self._waiting or self._reloading)

    def tick(self, now: float) -> None:
        """Close the clients that have used up their time, and answer those of a reload."""
        self._answer_if_over()
        self.socket.drop_overdue(now)

    def _serve(self, client: ControlClient, command: str, arguments: dict[str, Any]) -> None:
        supervisor = self._supervisor
        if command == "reload":
            self._waiting.append(client)
            client.until = inf
            supervisor.happen(on_reload)
            if supervisor.tree.is_ending:
                self.answer_all_reloads(STOPPING)
            return
        if command == "drain":
            supervisor.stop(drain=True, without_limit=True)
        elif command == "stop":
            supervisor.stop(drain=not arguments.get("now"))
        answer: Mapping[str, Any] = {"pid": os.getpid()}
        if command == "status":
            answer = supervisor.status.document()
        elif command == "metrics":
            answer = supervisor.status.metrics()
        elif command == "wake":
            answer = supervisor.sleeping.on_command(arguments.get("flow"))
        self.socket.answer(client, answer)

    def begin_reload(self) -> None:
        """The clients that wait get the answer of this reload; those of one before get theirs."""
        self._answer_if_over(at_once=True)
        self._reloading, self._waiting = self._waiting, []

    def report_reload(self, report: ReportReload) -> None:
        """A reload was applied; it is answered when its drains and starts have ended."""
        self._supervisor.status.reloads["done"] += 1
        self._supervisor.log.info("supervisor.reloaded", **asdict(report))
        self._report = report
        self._answer_if_over()
        self._supervisor.manager.on_reloaded()

    def report_refused(self, problems: Sequence[Problem]) -> None:
        """A reload was refused and has changed nothing."""
        self._supervisor.status.reloads["refused"] += 1
        answer = {"error": "refused", "problems": [_shown(each) for each in problems]}
        if self._supervisor.tree.phase is DaemonPhase.DISCOVERING:  # no reload will follow
            self.answer_all_reloads(answer)
        else:
            self._answer_reload(answer)
        self._supervisor.manager.on_reloaded()

    def answer_all_reloads(self, answer: dict[str, Any]) -> None:
        """Answer every client of a reload: no other one will begin."""
        self._reloading, self._waiting = self._reloading + self._waiting, []
        self._answer_reload(answer)

    def _answer_if_over(self, *, at_once: bool = False) -> None:
        if self._report is None:
            return
        flows = reloaded_flows(self._supervisor.tree, self._report)
        if at_once or is_over(flows):
            problems = [_shown(problem) for problem in self._supervisor.status.answer]
            answer = {"flows": [encoded(flow) for flow in flows], "problems": problems}
            self._answer_reload({**asdict(self._report), **answer})

    def _answer_reload(self, answer: dict[str, Any]) -> None:
        """Answer the clients of the reload that goes on."""
        self._report = None
        clients, self._reloading = self._reloading, []
        for client in clients:
            self.socket.answer(client, answer)


def _shown(problem: Problem) -> dict[str, Any]:
    """A problem as answers show it."""
    return {**asdict(problem), "flow": None}
