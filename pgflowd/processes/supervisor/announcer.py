"""
Writes the supervisor's log records, and notifies the service manager.

It writes the records that actions ask for (docs/background/supervision.md, rule 49), sends the
status, extends the time limit while the daemon starts or stops, and feeds the watchdog once per
round of the loop, which has just checked every child (rule 48). It decides nothing and never waits.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from pgflowd.core.documents.daemon_status import is_cut_off
from pgflowd.core.supervision import actions as act
from pgflowd.core.supervision.kinds import SINGLE_KINDS
from pgflowd.core.supervision.tree import Announcement, ChildState, DaemonPhase
from pgflowd.errors import Problem
from pgflowd.host.process_tree import send_signal
from pgflowd.host.signals import stacks
from pgflowd.host.systemd import Notifier
from pgflowd.processes.supervisor.control import STOPPING
from pgflowd.processes.supervisor.status import problem_json

if TYPE_CHECKING:
    from pgflowd.processes.supervisor.loop import SupervisorLoop

EXTEND_INTERVAL_S = 5.0  # well within the extension
EXTENSION_S = 20.0  # that each message asks of the service manager
CHECK_S = 1.0  # while the daemon starts or stops; its status changes often
REST_S = 5.0  # otherwise: with hundreds of flows it takes some milliseconds


class Announcer:
    """The log and the service manager, as the supervisor uses them."""

    def __init__(self, supervisor: SupervisorLoop, notifier: Notifier) -> None:
        self._supervisor = supervisor
        self._log = supervisor.log
        self._notifier = notifier
        self._feed_at = 0.0
        self._extend_at = 0.0
        self._summary_at = 0.0
        self._last_summary = ""

    @property
    def due(self) -> float | None:
        """When the service manager needs the next message."""
        moments = [self._feed_at] if self._notifier.watchdog_s is not None else []
        if self._is_busy():
            moments.append(time.monotonic() + CHECK_S)
        return min(moments, default=None)

    def tick(self, now: float) -> None:
        """Notify the service manager; the loop has just checked every child."""
        self._notifier.flush()
        watchdog_s = self._notifier.watchdog_s
        if watchdog_s is not None and self._feed_at <= now:
            self._notifier.alive()
            self._feed_at = now + watchdog_s / 3
        if self._is_busy() and self._extend_at <= now:
            self._notifier.extend(EXTENSION_S)
            self._extend_at = now + EXTEND_INTERVAL_S
        if self._notifier.is_heard and self._summary_at <= now:
            self._summary_at = now + (CHECK_S if self._is_busy() else REST_S)
            self._send_summary()

    def _send_summary(self) -> None:
        summary = self._summary()
        if summary != self._last_summary:
            self._last_summary = summary
            self._notifier.status(summary)

    def record(self, action: act.Action) -> None:
        """Write the log record of an action, and answer the clients that wait for it."""
        if isinstance(action, act.LogAction):
            fields = {"child": action.id, "flow": self._flow_of(action.id), **action.fields()}
            self._log.write(action.level, action.event, **fields)
        if isinstance(action, act.LogRestart):
            counts = self._supervisor.status.restarts.setdefault(action.id, Counter())
            counts[action.exit.label] += 1
        elif isinstance(action, act.ReportReload):
            self._on_reloaded(action)
        elif isinstance(action, act.Announce):
            self._announce(action.what)

    def _flow_of(self, id: str) -> str | None:
        child = self._supervisor.tree.child(id)
        return child.spec.name or None if child else None

    def _announce(self, what: Announcement) -> None:
        self._extend_at = 0.0
        if what is Announcement.READY:
            self._log.info("supervisor.ready", took_s=self._supervisor.status.up_s)
            self._notifier.ready(self._summary())
            return
        self._log.info(f"supervisor.{what.value}")
        self._notifier.stopping(what.value)
        self._supervisor.control.answer_all_reloads(STOPPING)

    def _on_reloaded(self, action: act.ReportReload) -> None:
        """The reload is applied; who asked for it learns how its drains and starts have ended."""
        self._supervisor.status.reloads["done"] += 1
        self._log.info("supervisor.reloaded", **asdict(action))
        self._supervisor.control.report_reload(action)
        self._reload_is_over()

    def on_reload_refused(self, problems: Sequence[Problem]) -> None:
        """A reload was refused and has changed nothing."""
        self._supervisor.status.reloads["refused"] += 1
        answer = {"error": "refused", "problems": [problem_json(each) for each in problems]}
        control = self._supervisor.control
        if self._supervisor.tree.phase is DaemonPhase.DISCOVERING:  # no reload will follow
            control.answer_all_reloads(answer)
        else:
            control.answer_reload(answer)
        self._reload_is_over()

    def _reload_is_over(self) -> None:
        if self._supervisor.tree.was_ready:
            self._notifier.ready(self._summary())

    def reloading(self) -> None:
        self._notifier.reloading()

    def log_problem(self, problem: Problem) -> None:
        """Log one problem."""
        level = "warning" if problem.is_warning else "error"
        self._log.write(
            level,
            "supervisor.problem",
            code=problem.code,
            error=problem.text,
            place=problem.place,
            next=problem.next,
        )

    def dump(self, number: signal.Signals) -> None:
        """Log the tree and all stacks; children log theirs at USR1."""
        status = self._supervisor.status.document()
        self._log.info("supervisor.dump", signal=number.name, state=status["state"])
        singles = [status[kind.name] for kind in SINGLE_KINDS]
        for part in [*status["flows"], *singles]:
            self._log.info("supervisor.tree", **{k: v for k, v in part.items() if k != "pid"})
        for thread, stack in stacks().items():
            self._log.info("supervisor.stack", thread=thread, stack=stack)
        for process in self._supervisor.children.alive.values():
            for task in process.numbers.get("busy", []):
                self._log.info("supervisor.task", child=process.id, **task)
            send_signal(process.pid, signal.SIGUSR1)

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
