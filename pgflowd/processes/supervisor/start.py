"""
Makes a process the supervisor (socket, log, rights), then starts its loop.

Everything that can be refused is refused here, before any child is started: another daemon
with the same control socket (SocketInUse), a runtime directory of another user. Processes that an
earlier daemon left running are killed. Signals are handled before all else, by `take_signals`.
The process must have no other children: the supervisor would kill them as strays.
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
from pgflowd.db.schema.files import read_all
from pgflowd.host.config import control_path
from pgflowd.host.control import ControlSocket
from pgflowd.host.fork import become_subreaper, hide_memory
from pgflowd.host.logs import open_log
from pgflowd.host.process_tree import SurvivorFile
from pgflowd.host.signals import SignalPipe
from pgflowd.host.systemd import Notifier
from pgflowd.processes.supervisor.loop import SupervisorLoop

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
    "pgflowd.processes.runner.memo_work",
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
