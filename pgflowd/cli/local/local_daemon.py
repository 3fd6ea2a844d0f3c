"""
Runs the daemon of `pgflowd demo` and `pgflowd dev`.

The daemon is a child process, started as `pgflowd serve`, which may also recreate flows whose
shape has changed. It is stopped when its command ends, and gets SIGTERM if that is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import IO, Any

import click

from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.supervision.lifecycle import ChildState

START_TIMEOUT_S = 60.0  # on a busy machine the imports of flows alone take seconds
STOP_TIMEOUT_S = 75.0  # more than drain_timeout and kill_grace by default
POLL_S = 0.05  # short compared with a start, which takes about a second
_SERVED = {ChildState.UP.value, ChildState.ASLEEP.value}
_UNSETTLED = {
    state.value for state in (ChildState.STARTING, ChildState.RESTARTING, ChildState.DRAINING)
}


class DaemonNotUp(click.ClickException):
    """The daemon did not start, or has ended."""

    exit_code = ExitCode.NO

    def __init__(self, message: str, daemon_exit_code: int | None = None) -> None:
        super().__init__(message)
        self.daemon_exit_code = daemon_exit_code


class DirectoryInUse(click.ClickException):
    """Another daemon has the socket, such as that of a second demo in the directory."""

    exit_code = ExitCode.TRY_LATER


@contextlib.contextmanager
def daemon(
    arguments: Sequence[str],
    *,
    database_url: str,
    log: IO[Any] | None,
    environ: Mapping[str, str] | None = None,
    may_recreate: bool = True,
    ending: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> Iterator[subprocess.Popen[bytes]]:
    """
    Run `pgflowd … serve` on this database until the block ends; log None: our stderr. `ending`
    is entered while it is waited for the daemon's end.
    """
    from pgflowd.host.fork import set_death_signal

    process = subprocess.Popen(
        [sys.executable, "-m", "pgflowd", *arguments, "serve", *["--recreate"] * may_recreate],
        env={
            **os.environ,
            **(environ or {}),
            "PGFLOWD__DATABASE__URL": database_url,
            "PGFLOWD__DATABASE__LISTEN_URL": database_url,  # overrides the project's config
        },
        stdin=subprocess.DEVNULL,
        stderr=log,
        start_new_session=True,  # Ctrl-C ends this command, which then stops the daemon
        preexec_fn=partial(set_death_signal, signal.SIGTERM),  # if this process is killed
    )
    try:
        yield process
    finally:
        _end(process, ending)


def _end(
    process: subprocess.Popen[bytes], ending: Callable[[], AbstractContextManager[None]]
) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        with ending():
            process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    except KeyboardInterrupt:  # a second Ctrl-C: a quick stop
        process.terminate()
        process.wait()


def wait_until_settled(process: subprocess.Popen[bytes], socket: Path) -> dict[str, Any]:
    """
    Return the daemon's status as soon as each of its flows is up or parked.

    At least one is served: a daemon that starts and can serve none of them ends.
    """
    from pgflowd.host import control

    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        if process.poll() == ExitCode.TRY_LATER:
            raise DirectoryInUse(f"another daemon uses {socket}; stop it first")
        if process.returncode is not None:
            text = f"the daemon ended with exit code {process.returncode}"
            raise DaemonNotUp(text, process.returncode)
        with contextlib.suppress(OSError, ValueError):
            status = control.ask(socket, "status", 5.0)
            states = {status["state"], *(flow["state"] for flow in status["flows"])}
            is_settled = states & _SERVED and not states & _UNSETTLED
            if status["pid"] == process.pid and is_settled:
                return status
        time.sleep(POLL_S)
    raise DaemonNotUp(f"the daemon did not start within {START_TIMEOUT_S:.0f} s")


@contextlib.contextmanager
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
