"""
What runs beside `pgflowd dev` and `pgflowd demo`: the daemon and the dashboard.

The daemon is `pgflowd serve` on one database, and may recreate flows whose shape has changed. The
dashboard is `pgflowd web` on this machine alone, whatever the project config says of logins;
without the extra `web` there is none, and a remark says how to get it. Both are stopped when their
command ends, and get SIGTERM if that is killed. While a command waits for the daemon, a thread
reads its status and prints what it waits for: imports, starts, running tasks.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any

import click

from pgflowd.cli.app import App, CommandRefused
from pgflowd.cli.commands.web import INSTALL, is_installed
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.statuses import ChildState
from pgflowd.core.text import counted, duration
from pgflowd.host import control
from pgflowd.host.fork import set_death_signal

START_TIMEOUT_S = 60.0  # on a busy machine the imports of flows alone take seconds
STOP_TIMEOUT_S = 75.0  # more than drain_timeout and kill_grace by default
POLL_S = 0.05  # short compared with a start, which takes about a second
_SERVED = {ChildState.UP.value, ChildState.ASLEEP.value}
_UNSETTLED = {
    state.value for state in (ChildState.STARTING, ChildState.RESTARTING, ChildState.DRAINING)
}
LISTEN = "127.0.0.1:7460"  # another port if somebody has it
START_S = 30.0  # on a busy machine the imports alone take seconds
END_S = 10.0  # more than it takes to end its streams
Status = dict[str, Any]
LONG_S = 2.0  # an ordinary start or reload is over by then
STOP_S = 0.5  # an end without running tasks is
STATUS_POLL_S = 0.5
_STARTING = {ChildState.STARTING.value, ChildState.RESTARTING.value}


class DaemonNotUp(click.ClickException):
    """The daemon did not start, or has ended."""

    exit_code = ExitCode.NO

    def __init__(self, message: str, daemon_exit_code: int | None = None) -> None:
        super().__init__(message)
        self.daemon_exit_code = daemon_exit_code


@contextmanager
def _child(
    words: Sequence[str],
    environ: Mapping[str, str],
    end_s: float,
    ending: Callable[[], AbstractContextManager[None]] = nullcontext,
    **streams: Any,
) -> Iterator[subprocess.Popen[Any]]:
    """
    Run `pgflowd` with these words until the block ends, and at most `end_s` longer. `ending` is
    entered while it is waited for the end; a second Ctrl-C makes that a quick one.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "pgflowd", *words],
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C ends this command, which then ends its children
        preexec_fn=partial(set_death_signal, signal.SIGTERM),  # if this process is killed
        **streams,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            with ending():
                process.wait(end_s)
        except subprocess.TimeoutExpired:
            process.kill()
        except KeyboardInterrupt:
            process.terminate()
        process.wait()
        if process.stdout:
            process.stdout.close()


def daemon(
    arguments: Sequence[str],
    *,
    database_url: str,
    log: IO[Any] | None,
    environ: Mapping[str, str] | None = None,
    may_recreate: bool = True,
    ending: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run `pgflowd … serve` on this database until the block ends; log None: our stderr."""
    own = {  # overrides the project's config
        "PGFLOWD__DATABASE__URL": database_url,
        "PGFLOWD__DATABASE__LISTEN_URL": database_url,
    }
    words = [*arguments, "serve", *["--recreate"] * may_recreate]
    return _child(words, {**(environ or {}), **own}, STOP_TIMEOUT_S, ending, stderr=log)


def wait_until_settled(process: subprocess.Popen[bytes], socket: Path) -> dict[str, Any]:
    """
    Return the daemon's status as soon as each of its flows is up or parked.

    At least one is served: a daemon that starts and can serve none of them ends.
    """
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        if process.poll() == ExitCode.TRY_LATER:  # as in the directory of a demo that runs
            text = f"another daemon uses {socket}; stop it first"
            raise CommandRefused(text, ExitCode.TRY_LATER)
        if process.returncode is not None:
            text = f"the daemon ended with exit code {process.returncode}"
            raise DaemonNotUp(text, process.returncode)
        with suppress(OSError, ValueError):
            status = control.ask(socket, "status", 5.0)
            states = {status["state"], *(flow["state"] for flow in status["flows"])}
            is_settled = states & _SERVED and not states & _UNSETTLED
            if status["pid"] == process.pid and is_settled:
                return status
        time.sleep(POLL_S)
    raise DaemonNotUp(f"the daemon did not start within {START_TIMEOUT_S:.0f} s")


@contextmanager
def interrupted_by_term() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C; also SIGHUP, which a closed terminal sends."""
    signals = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # not under nohup
        signals.append(signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def local_web(
    app: App, arguments: Sequence[str], database_url: str
) -> Iterator[Callable[[], str | None]]:
    """
    Serve the dashboard of a database until the block ends. Yields what waits for its link; None: it
    is not served, and a remark says why.
    """
    environ = {
        "PGFLOWD__WEB__URL": database_url,
        "PGFLOWD__WEB__OPERATOR_URL": database_url,
        "PGFLOWD__WEB__AUTH": "key",
        "PGFLOWD__WEB__TOKENS": "",
        "PGFLOWD__WEB__SECRET": "",
        "PGFLOWD__WEB__BASE_PATH": "",
    }
    with ExitStack() as stack:

        def serve(listen: str) -> subprocess.Popen[str]:
            words = [*arguments, "web", "--json", "--quiet", "--listen", listen]
            streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            return stack.enter_context(_child(words, environ, END_S, text=True, **streams))

        process, line = serve(LISTEN) if is_installed() else None, ""

        def link() -> str | None:
            nonlocal process, line
            if process is None:
                app.note(f"  for a dashboard in the browser: {INSTALL}")
                return None
            line = line or _first_line(process)
            if not line:  # the port is in use; or the config was wrong, until now
                is_taken = process.wait(END_S) == ExitCode.TRY_LATER
                process = serve(f"127.0.0.1:{_free_port()}" if is_taken else LISTEN)
                line = _first_line(process)
            with suppress(ValueError):
                return str(json.loads(line)["link"])
            app.note("  the dashboard did not start; `pgflowd web` says why")
            return None

        yield link


def _first_line(process: subprocess.Popen[str]) -> str:
    """What the dashboard prints when it answers; empty if it has ended, or takes too long."""
    assert process.stdout is not None
    if select.select([process.stdout], [], [], START_S)[0]:
        return process.stdout.readline()
    process.kill()
    return ""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def print_time(app: App, text: str) -> None:
    head = f"{time.strftime('%H:%M:%S')} "
    app.print_lines(app.out.wrapped(text, head=head, indent=len(head)))


@contextmanager
def telling(
    app: App, socket: Path, what: Callable[[Status], str], after_s: float = LONG_S
) -> Iterator[None]:
    """Tell what is waited for, as long as the block takes."""
    ended = Event()

    def tell() -> None:
        told, pause_s = "", after_s
        while not ended.wait(pause_s):
            pause_s = STATUS_POLL_S
            with suppress(OSError, ValueError):
                text = what(control.ask(socket, "status", 1.0))
                kind = text.partition(" ")[0]
                if kind not in ("", told) and not ended.is_set():
                    print_time(app, text)
                told = kind

    thread = Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def of_start(entries: Sequence[str], status: Status) -> str:
    """What a start waits for; `entries` are the modules of the config."""
    if not status["flows"]:
        return f"importing {', '.join(entries)} …"
    return _of_starting(status)


def of_reload(status: Status) -> str:
    """What a reload waits for."""
    draining = [flow for flow in status["flows"] if flow["state"] == ChildState.DRAINING]
    if tasks := _tasks_of(draining):
        return f"waiting for {tasks} with the old code …"
    return _of_starting(status) or "importing the changed code …"


def _of_starting(status: Status) -> str:
    starting = [flow["slug"] for flow in status["flows"] if flow["state"] in _STARTING]
    return f"starting {', '.join(starting)} …" if starting else ""


@contextmanager
def telling_the_end(app: App, socket: Path, limit_s: float) -> Iterator[None]:
    """Tell what the end waits for; `limit_s` is the longest time that it gives running tasks."""

    def what(status: Status) -> str:
        tasks = _tasks_of(status["flows"])
        limit = f"at most {duration(limit_s)}"
        return f"waiting for {tasks}, {limit}; Ctrl-C again stops now" if tasks else ""

    try:
        with telling(app, socket, what, STOP_S):
            yield
    except KeyboardInterrupt:
        print_time(app, "stopping now; running tasks are given back")
        raise


def _tasks_of(flows: Sequence[dict[str, Any]]) -> str:
    running = {flow["slug"]: flow["running"] for flow in flows if flow["running"]}
    return ", ".join(f"{counted(each, 'task')} of {slug}" for slug, each in running.items())
