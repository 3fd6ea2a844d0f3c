"""
The supervisor's loop: starts, watches and stops all children, and never blocks.

It waits in one place: for signals, for messages and ends of children, for the control socket
and for the nearest deadline. Each becomes an event for `core.supervision`, whose actions are
performed here; each action that docs/background/supervision.md, rule 49, names is a log record. It
imports no user code and holds no database connection, so neither can end it. Its parts are
`children` (processes), `inbox` (their messages, and workers that sleep), `reload` (discovery and
reload), and `status` (status, service manager and control socket).
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import logging
import os
import resource
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Concatenate, ParamSpec

import setproctitle

from pgflowd import __version__
from pgflowd.core.messages import Message, StatusPart
from pgflowd.core.settings.sections import Settings
from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision import transition as act
from pgflowd.core.supervision.decide import next_due, on_begin, on_exit, on_stop, on_tick
from pgflowd.core.supervision.kinds import CHECK, DISCOVERY, SINGLE_KINDS
from pgflowd.core.supervision.reload import on_reload
from pgflowd.core.supervision.tree import (
    ChildExit,
    DaemonPhase,
    ExitKind,
    ServedFlow,
    Tree,
    classify_exit,
    label_of,
    new_tree,
)
from pgflowd.db.schema.state import read_all
from pgflowd.errors import Problem
from pgflowd.host.config import control_path
from pgflowd.host.control import ControlSocket
from pgflowd.host.fork import SignalPipe, become_subreaper, hide_memory, stacks
from pgflowd.host.logs import Log, open_log
from pgflowd.host.process_tree import SurvivorFile, send_signal
from pgflowd.processes.supervisor.children import (
    REAP_POLL_S,
    ChildProcess,
    Children,
    main_of,
    policy_of,
    single_specs,
)
from pgflowd.processes.supervisor.inbox import Inbox, SleepingWorkers
from pgflowd.processes.supervisor.reload import Reloader
from pgflowd.processes.supervisor.status import ControlServer, ServiceManager, StatusReporter

P = ParamSpec("P")
WRITE_INTERVAL_S = 2.0  # of the processes that a next start would kill
WRITE_AFTER_START_S = 0.5  # by then a started child has forked its own


class SupervisorLoop:
    """The loop and its state."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        *,
        reread: Callable[[], Settings],  # raises ConfigError
        signals: SignalPipe,
        control: ControlSocket,
        survivors: SurvivorFile,
        only: frozenset[str] = frozenset(),  # serve only these flows; empty: all
    ) -> None:
        self.settings = settings
        self.log = log
        self.tree: Tree = new_tree(policy_of(settings), single_specs(settings))
        self.served: dict[str, ServedFlow] = {}
        self.code: int | None = None
        self._signals, self._survivors = signals, survivors
        self.selector = selectors.DefaultSelector()  # the data of a key is what it calls
        self.selector.register(signals, selectors.EVENT_READ, self._on_signals)
        self.inbox = Inbox(self)
        self.children = Children(settings.pgflowd.name, log, self.selector, self.inbox.receive)
        self.status = StatusReporter(self)
        self.control = ControlServer(self, control)
        self.manager = ServiceManager(self)
        self.reloader = Reloader(self, reread, only)
        self.sleeping = SleepingWorkers(self)
        self._directory, self._is_directory_gone = Path.cwd(), False
        self._is_stop_requested = False
        self._write_at = 0.0
        self._actions: deque[act.Action] = deque()
        self._is_performing = False

    def run(self) -> int:
        """Run until the daemon ends; return the exit code."""
        self.happen(on_begin)
        self.reloader.begin()
        while self.code is None:
            for key, _ in self.selector.select(self._wait_s()):
                key.data()
            # do what every round does: reap, perform what is due, and report
            for process in self.children.reap():
                self._on_exit(process)
            now = self.now()
            self.children.kill_overdue(now)
            due = next_due(self.tree)
            if due is not None and due <= now:
                self.happen(on_tick)
            self.reloader.tick()
            self.sleeping.tick()
            if self._write_at <= now:
                self.control.keep_socket()
                if self.control.socket.place.is_ours:  # else the file is another daemon's
                    self._survivors.write()
                self._write_at = now + WRITE_INTERVAL_S
            self.control.tick(now)
            self.manager.tick(now)
        # kill every process that is left (docs/background/supervision.md, rule 34), and close
        for process in self.children.end_all(within_s=2.0):
            self.log_child("info", "child.exited", process, reason="the daemon ends")
        if self.control.socket.place.is_ours:
            self._survivors.remove()
        self.log.info("supervisor.stopped", status=self.code)
        self.control.socket.close()
        return self.code

    def now(self) -> float:
        return time.monotonic()

    def _on_signals(self) -> None:
        for number in self._signals.received():
            if number in {signal.SIGTERM, signal.SIGINT}:
                self.stop(drain=not self._is_stop_requested)
                self._is_stop_requested = True
            elif number == signal.SIGHUP:
                self.happen(on_reload)
            elif number in {signal.SIGUSR1, signal.SIGQUIT}:
                self._dump(number)
                if number == signal.SIGQUIT:
                    self.stop(drain=False)
            elif number == signal.SIGCHLD:
                self.children.reap_orphans()

    def stop(self, *, drain: bool, without_limit: bool = False) -> None:
        """Stop: drain within `drain_timeout` (or without a limit), or at once."""
        within_s = None if without_limit else self.settings.supervisor.drain_timeout_s
        self.reloader.discovery.stop()
        self.happen(on_stop, drain=drain, within_s=within_s if drain else None)

    def _on_exit(self, process: ChildProcess) -> None:
        if process.kind is DISCOVERY:
            self.reloader.discovery.on_end(process)
            return
        if process.kind is CHECK:
            self.reloader.on_check_ended(process)
            return
        self.status.keep_numbers(process)
        self.sleeping.note(process)
        child = self.tree.child(process.id)
        asked = child is not None and child.state in {ChildState.DRAINING, ChildState.STOPPING}
        exit = classify_exit(process.status, process.exit_message, process.kill_reason)
        as_asked = process.status == 0 and asked
        is_clean = as_asked or exit.is_orderly
        self.log_child(
            "info" if is_clean else "warning",
            "child.exited",
            process,
            reason="as asked" if as_asked else exit.reason,
            status=process.status,
            code=exit.code,
            lived_s=self.now() - process.started_at,
        )
        if process.worker_id:
            self.inbox.on_worker_ended(process.worker_id, is_clean=is_clean)
        self.happen(on_exit, process.id, exit)

    def happen(
        self,
        event: Callable[Concatenate[act.TreeTransition, P], None],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Take the tree that an event leads to, and perform its actions, in order."""
        transition = act.TreeTransition(self.tree, self.now())
        event(transition, *args, **kwargs)
        self.tree = transition.tree
        self._actions.extend(transition.actions)
        while self._actions and not self._is_performing:
            self._is_performing = True
            try:
                self._perform(self._actions.popleft())
            finally:
                self._is_performing = False

    def _perform(self, action: act.Action) -> None:
        if isinstance(action, act.StartChild):
            self._fork(action.id)
        elif isinstance(action, act.SendToChild) and action.id in self.children.alive:
            process = self.children.alive[action.id]
            if self.tree.phase is DaemonPhase.STOPPING and StatusPart in process.kind.receives:
                self.status.send_to(process)  # the last that it writes
            self.children.send(process, action.how)
        elif isinstance(action, act.KillChild) and action.id in self.children.alive:
            process = self.children.alive[action.id]
            self.log_child("warning", "child.killed", process, reason=action.why)
            self.children.kill(process, action.why)
        elif isinstance(action, act.LogChild):
            child = self.tree.child(action.id)
            flow = child.spec.name or None if child else None
            self.log.write(action.level, action.event, child=action.id, flow=flow, **action.fields)
            if action.event == act.RESTARTED:
                self.status.restarts[action.id][label_of(action.fields["reason"])] += 1
        elif isinstance(action, act.Announce):
            self.manager.announce(action.what)
        elif isinstance(action, act.ReportReload):
            self.control.report_reload(action)
        elif isinstance(action, act.Discover):
            self.reloader.begin()
        elif isinstance(action, act.End):
            self.code = action.code

    def _fork(self, id: str) -> None:
        """Start a child; if the system refuses, it counts as a crash."""
        self.restore_directory()
        child = self.tree.child(id)
        assert child is not None
        spec, served = child.spec, self.served.get(id)
        worker_id = self.sleeping.worker_id(id) if child.is_woken else None
        main = main_of(spec.kind, self.settings, self.log, served, worker_id)
        try:
            process = self.children.start(spec.kind, spec.name, main, served)
        except OSError as error:
            self.log.error("child.refused", child=id, error=str(error))
            exit = ChildExit(ExitKind.CRASH, f"no process could be started: {error}")
            self.happen(on_exit, id, exit)
            return
        self._write_at = min(self._write_at, self.now() + WRITE_AFTER_START_S)
        self.log_child("info", "child.started", process)

    def restore_directory(self) -> None:
        """Return to the working directory, which children share and imports may need, if somebody
        has deleted it and made it anew; report W114, once, if it is gone."""
        was_gone, self._is_directory_gone = self._is_directory_gone, False
        try:
            Path.cwd()
        except OSError:
            try:
                os.chdir(self._directory)
            except OSError:
                self._is_directory_gone = True
        if self._is_directory_gone and not was_gone:
            lost = f"the working directory {self._directory} was deleted"
            remedy = "make it again, or restart the daemon in another one"
            text = f"{lost}; what is relative to it is missing"
            self.log_problem(Problem("W114", text, None, remedy))

    def up(self, message: type[Message]) -> Iterator[ChildProcess]:
        """The processes that are up and receive this message."""
        for process in self.children.alive.values():
            child = self.tree.child(process.id)
            is_up = child is not None and child.state is ChildState.UP
            if is_up and message in process.kind.receives:
                yield process

    def _wait_s(self) -> float:
        moments = [next_due(self.tree), self._write_at, self.reloader.discovery.retry_at]
        moments += [self.children.due, self.manager.due, self.control.socket.due]
        if self.children.ended:
            waited_s = self.now() - min(each.ended_at for each in self.children.ended)
            moments.append(self.now() + max(REAP_POLL_S, min(0.2, waited_s / 10)))
        nearest = min(moment for moment in moments if moment is not None)
        return max(0.0, nearest - self.now())

    def log_child(self, level: str, event: str, process: ChildProcess, **fields: object) -> None:
        flow = process.served.slug if process.served else None
        self.log.write(level, event, child=process.id, flow=flow, child_pid=process.pid, **fields)

    def log_problem(self, problem: Problem) -> None:
        level = "warning" if problem.is_warning else "error"
        fields = {"code": problem.code, "place": problem.place, "next": problem.next}
        self.log.write(level, "supervisor.problem", error=problem.text, **fields)

    def _dump(self, number: signal.Signals) -> None:
        """Log the tree and all stacks; children log theirs at USR1."""
        status = self.status.document()
        self.log.info("supervisor.dump", signal=number.name, state=status["state"])
        singles = [status[kind.name] for kind in SINGLE_KINDS]
        for part in [*status["flows"], *singles]:
            self.log.info("supervisor.tree", **{k: v for k, v in part.items() if k != "pid"})
        for thread, stack in stacks().items():
            self.log.info("supervisor.stack", thread=thread, stack=stack)
        for process in self.children.alive.values():
            for task in process.numbers.get("busy", []):
                self.log.info("supervisor.task", child=process.id, **task)
            send_signal(process.pid, signal.SIGUSR1)


# Makes a process the supervisor (socket, log, rights), then starts its loop.
#
# Everything that can be refused is refused here, before any child is started: another daemon with
# the same control socket (SocketInUse), a runtime directory of another user. Processes that an
# earlier daemon left running are killed. The caller makes a `SignalPipe` of the signals before all
# else, so that none ends the process: the loop obeys each (docs/background/supervision.md, rule 2).
# The process must have no other children: the supervisor would kill them as strays.
SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGCHLD,
)
SHARED_MODULES = (
    "psycopg",
    "psycopg.rows",
    "psycopg.types.json",
    "pgflowd.async_client",
    "pgflowd.client",
    "pgflowd.processes.runner.completion",  # runners need it for ctx.conn() alone
)


def serve(
    settings: Settings,
    reread: Callable[[], Settings],
    signals: SignalPipe,
    only: Iterable[str] = (),
) -> int:
    """Run the supervisor until it stops; return the exit code."""
    os.umask(0o077)
    path = Path(control_path(settings)).absolute()
    control = ControlSocket(path)
    log = open_log(settings.logging, process="supervisor", name=settings.pgflowd.name)
    # what all children share is loaded here: after an upgrade on disk no child mixes two versions
    for module in SHARED_MODULES:
        importlib.import_module(module)
    read_all()
    # failures of connections are logged by their callers
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    gc.collect()
    gc.freeze()  # no collection touches these pages, so they stay shared
    setproctitle.setproctitle(f"{settings.pgflowd.name}: supervisor")
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError, AttributeError):
        faulthandler.enable()
    become_subreaper()
    hide_memory()
    log.info("supervisor.started", version=__version__, control=str(path), config=settings.file)
    if os.geteuid() == 0:
        log.warning("supervisor.root", error="handlers can do whatever root can; use another user")
    survivors = SurvivorFile(path.with_name(path.name + ".processes"))
    for seen in survivors.kill_survivors():
        text = f"process {seen.pid} ({seen.name}) of an earlier daemon was killed"
        log.warning(
            "child.survivor", child_pid=seen.pid, name=seen.name, session=seen.session, error=text
        )
    supervisor = SupervisorLoop(
        settings,
        log,
        reread=reread,
        signals=signals,
        control=control,
        survivors=survivors,
        only=frozenset(only),
    )
    for problem in settings.warnings:
        supervisor.log_problem(problem)
    return supervisor.run()
