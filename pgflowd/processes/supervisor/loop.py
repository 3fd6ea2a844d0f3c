"""
The supervisor's loop: starts, watches and stops all children, and never blocks.

It waits in one place: for signals, for messages and ends of children, for the control socket
and for the nearest deadline. Each becomes an event for `core.supervision`, whose actions are
performed here. It imports no user code and holds no database connection, so neither can end it.
Its parts are `children` (processes), `inbox` (their messages), `reload` (discovery and reload),
`control` (control socket), `sleeping` (workers that sleep), `status`, and `announcer` (log and
service manager).
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
from collections.abc import Callable, Iterable
from pathlib import Path

import setproctitle

from pgflowd import __version__
from pgflowd.core.messages import StatusPart
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision import actions as act
from pgflowd.core.supervision.decide import next_due, on_begin, on_exit, on_stop, on_tick
from pgflowd.core.supervision.kinds import CHECK, DISCOVERY
from pgflowd.core.supervision.reload import on_reload
from pgflowd.core.supervision.tree import (
    ChildExit,
    ChildState,
    DaemonPhase,
    ExitKind,
    ServedFlow,
    Tree,
    classify_exit,
    new_tree,
)
from pgflowd.db.schema.files import read_all
from pgflowd.host.config import control_path
from pgflowd.host.control import ControlSocket
from pgflowd.host.fork import become_subreaper, hide_memory
from pgflowd.host.logs import Log, open_log
from pgflowd.host.process_tree import SurvivorFile
from pgflowd.host.signals import SignalPipe
from pgflowd.host.systemd import Notifier
from pgflowd.host.working_directory import WorkingDirectory
from pgflowd.processes.supervisor.announcer import Announcer
from pgflowd.processes.supervisor.children import (
    REAP_POLL_S,
    ChildProcess,
    Children,
    main_of,
    policy_of,
    single_specs,
)
from pgflowd.processes.supervisor.control import ControlServer
from pgflowd.processes.supervisor.inbox import Inbox, SleepingWorkers
from pgflowd.processes.supervisor.reload import Reloader
from pgflowd.processes.supervisor.status import StatusReporter

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
        notifier: Notifier,
        survivors: SurvivorFile,
        only: frozenset[str] = frozenset(),  # serve only these flows; empty: all
    ) -> None:
        self.settings = settings
        self.log = log
        self.tree: Tree = new_tree(policy_of(settings), single_specs(settings))
        self.served: dict[str, ServedFlow] = {}
        self.code: int | None = None
        self._signals, self._survivors = signals, survivors
        self.selector = selectors.DefaultSelector()
        self.selector.register(signals, selectors.EVENT_READ, ("signals", None))
        self.children = Children(settings.pgflowd.name, log, self.selector)
        self.status = StatusReporter(self)
        self.control = ControlServer(self, control)
        self.announcer = Announcer(self, notifier)
        self.reloader = Reloader(self, reread, only)
        self.inbox = Inbox(self)
        self.sleeping = SleepingWorkers(self)
        self._directory = WorkingDirectory()
        self._is_stop_requested = False
        self._write_at = 0.0
        self._actions: deque[act.Action] = deque()

    def run(self) -> int:
        """Run until the daemon ends; return the exit code."""
        self.do(on_begin(self.tree, self.now()))
        self.reloader.begin()
        while self.code is None:
            for key, _ in self.selector.select(self._wait_s()):
                self._dispatch(*key.data)
            self._tick()
        self._shut_down()
        return self.code

    def now(self) -> float:
        return time.monotonic()

    def _dispatch(self, what: str, source: object) -> None:
        if what == "signals":
            for number in self._signals.received():
                self._on_signal(number)
        elif what == "message" and isinstance(source, ChildProcess):
            self.inbox.receive(source, self.children.receive(source))
        elif what == "end" and isinstance(source, ChildProcess):
            self.children.on_end(source)
        else:
            self.control.on_event(what, source)

    def _on_signal(self, number: signal.Signals) -> None:
        if number in {signal.SIGTERM, signal.SIGINT}:
            self.stop(drain=not self._is_stop_requested)
            self._is_stop_requested = True
        elif number == signal.SIGHUP:
            self.reload()
        elif number == signal.SIGUSR1:
            self.announcer.dump(number)
        elif number == signal.SIGQUIT:
            self.announcer.dump(number)
            self.stop(drain=False)
        elif number == signal.SIGCHLD:
            self.children.reap_orphans()

    def stop(self, *, drain: bool, without_limit: bool = False) -> None:
        """Stop: drain within `drain_timeout` (or without a limit), or at once."""
        within_s = None if without_limit else self.settings.supervisor.drain_timeout_s
        self.reloader.discovery.stop()
        self.do(on_stop(self.tree, self.now(), drain=drain, within_s=within_s if drain else None))

    def reload(self) -> None:
        self.do(on_reload(self.tree, self.now()))

    def _tick(self) -> None:
        """Do what every round does: reap, perform what is due, and report."""
        for process in self.children.reap():
            self._on_exit(process)
        now = self.now()
        due = next_due(self.tree)
        if due is not None and due <= now:
            self.do(on_tick(self.tree, now))
        self.reloader.tick()
        self.sleeping.tick()
        if self._write_at <= now:
            self.control.keep_socket()
            if self.control.has_place:
                self._survivors.write()
            self._write_at = now + WRITE_INTERVAL_S
        self.control.tick(now)
        self.announcer.tick(now)

    def _on_exit(self, process: ChildProcess) -> None:
        self.inbox.receive(process, process.unread)
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
        clean = process.status == 0 and asked
        level = "info" if clean or exit.is_orderly else "warning"
        self.log_child(
            level,
            "child.exited",
            process,
            reason="as asked" if clean else exit.reason,
            status=process.status,
            code=exit.code,
            lived_s=self.now() - process.started_at,
        )
        if process.worker_id:
            is_clean = clean or exit.is_orderly
            self.inbox.on_worker_ended(process.worker_id, is_clean=is_clean)
        self.do(on_exit(self.tree, process.id, exit, self.now()))

    def do(self, result: tuple[Tree, list[act.Action]]) -> None:
        """Take the new tree, and perform its actions, in order."""
        self.tree, actions = result
        self._actions.extend(actions)
        while self._actions:
            self._perform(self._actions.popleft())

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
        elif isinstance(action, act.Discover):
            self.reloader.begin()
        elif isinstance(action, act.End):
            self.code = action.code
        else:
            self.announcer.record(action)

    def restore_directory(self) -> None:
        """Care for the working directory, which children share and imports may need."""
        if problem := self._directory.restore():
            self.announcer.log_problem(problem)

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
            self.tree, actions = on_exit(self.tree, id, exit, self.now())
            self._actions.extend(actions)
            return
        self._write_at = min(self._write_at, self.now() + WRITE_AFTER_START_S)
        self.log_child("info", "child.started", process)

    def _wait_s(self) -> float:
        moments = [
            next_due(self.tree),
            self._write_at,
            self.reloader.due,
            self.announcer.due,
        ]
        moments.append(self.control.due)
        if self.children.ended:
            waited_s = self.now() - min(each.ended_at for each in self.children.ended)
            moments.append(self.now() + max(REAP_POLL_S, min(0.2, waited_s / 10)))
        nearest = min(moment for moment in moments if moment is not None)
        return max(0.0, nearest - self.now())

    def log_child(self, level: str, event: str, process: ChildProcess, **fields: object) -> None:
        flow = process.served.slug if process.served else None
        self.log.write(level, event, child=process.id, flow=flow, child_pid=process.pid, **fields)

    def _shut_down(self) -> None:
        """Kill every process that is left (docs/background/supervision.md, rule 34), and close."""
        for process in self.children.end_all(within_s=2.0):
            self.log_child("info", "child.exited", process, reason="the daemon ends")
        if self.control.has_place:
            self._survivors.remove()
        self.log.info("supervisor.stopped", status=self.code)
        self.control.close()


# Makes a process the supervisor (socket, log, rights), then starts its loop.
#
# Everything that can be refused is refused here, before any child is started: another daemon with
# the same control socket (SocketInUse), a runtime directory of another user. Processes that an
# earlier daemon left running are killed. Signals are handled before all else, by `take_signals`.
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
    "pgflowd.processes.runner.completion",  # runners need these two for ctx.conn() alone
    "pgflowd.processes.runner.completion",
)


def take_signals() -> SignalPipe:
    """
    Let no signal end the process; the loop obeys each (docs/background/supervision.md, rule 2).
    """
    return SignalPipe(SIGNALS)


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
    _prepare_process(settings.pgflowd.name)
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
        notifier=Notifier(),
        survivors=survivors,
        only=frozenset(only),
    )
    for problem in settings.warnings:
        supervisor.announcer.log_problem(problem)
    return supervisor.run()


def _prepare_process(name: str) -> None:
    """Set the rights and title of a supervisor, and load what all children share.

    What is loaded here cannot change: after an upgrade on disk no child mixes two versions.
    """
    for module in SHARED_MODULES:
        importlib.import_module(module)
    read_all()
    # failures of connections are logged by their callers
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    gc.collect()
    gc.freeze()  # no collection touches these pages, so they stay shared
    setproctitle.setproctitle(f"{name}: supervisor")
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError, AttributeError):
        faulthandler.enable()
    become_subreaper()
    hide_memory()
