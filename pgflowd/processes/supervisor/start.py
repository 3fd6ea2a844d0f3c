"""
Daemon: makes a process the supervisor: rights, lock, log, socket; then runs it.

Everything that can be refused is refused here, before any child is started: another daemon
with the same control socket (Taken), a runtime directory that is not ours. What an earlier
daemon left behind is cleared. Signals are handled before all else, by `take_signals`.
The process must have no other children: the supervisor takes them for strays, and kills them.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import logging
import os
import resource
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import setproctitle

from pgflowd import __version__
from pgflowd.core.settings.sections import Settings
from pgflowd.host.config import control_path
from pgflowd.host.control import ControlSocket, Lock
from pgflowd.host.fork import become_subreaper, hide_memory
from pgflowd.host.logs import open_log
from pgflowd.host.survivors import SurvivorFile
from pgflowd.host.signals import SignalPipe
from pgflowd.host.systemd import Notifier
from pgflowd.processes.supervisor.loop import StartOptions, SupervisorLoop

SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGCHLD,
)
SHARED_MODULES = ("psycopg", "psycopg.rows", "psycopg.types.json")


def take_signals() -> SignalPipe:
    """From here on no signal ends us; each is obeyed by the loop (rule 2)."""
    return SignalPipe(SIGNALS)


def serve(
    settings: Settings,
    reread: Callable[[], Settings],
    signals: SignalPipe,
    only: Iterable[str] = (),
) -> int:
    """Be the supervisor until told to stop; return the exit code."""
    os.umask(0o077)
    path = Path(control_path(settings)).absolute()
    lock = Lock(path)
    log = open_log(settings.logging, process="supervisor", name=settings.pgflowd.name)
    _prepare_process(settings.pgflowd.name)
    log.info("supervisor.started", version=__version__, control=str(path), config=settings.file)
    if os.geteuid() == 0:
        log.warning("supervisor.root", error="handlers can do whatever root can; use another user")
    for problem in settings.warnings:
        fields = {"code": problem.code, "error": problem.text}
        log.warning("supervisor.problem", **fields, place=problem.place, next=problem.next)
    remembered = SurvivorFile(path.with_name(path.name + ".processes"))
    for seen in remembered.kill_survivors():
        log.warning("child.survivor", child_pid=seen.pid, name=seen.name, session=seen.session)
    start = StartOptions(
        settings,
        reread,
        log,
        signals,
        ControlSocket(path),
        Notifier(),
        remembered,
        frozenset(only),
    )
    try:
        return SupervisorLoop(start).run()
    finally:
        lock.release()


def _prepare_process(name: str) -> None:
    """Have the rights and the title of a supervisor, and what all children will share."""
    for module in SHARED_MODULES:
        importlib.import_module(module)
    logging.getLogger("psycopg").addHandler(logging.NullHandler())  # we say ourselves what fails
    gc.collect()
    gc.freeze()  # nobody's collector looks at what is there, and so it stays shared
    setproctitle.setproctitle(f"{name}: supervisor")
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError, AttributeError):
        faulthandler.enable()
    become_subreaper()
    hide_memory()
