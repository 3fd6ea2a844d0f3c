"""
Workshop: what `demo` and `dev` stand on: a daemon beside an embedded PostgreSQL.

The daemon is a process of its own, started as a user would, but allowed to recreate flows
whose shape has changed. It ends with us: asked when we leave, killed when we are killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import click

from pgflowd.cli.exits import ExitCode

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 75.0  # drain_timeout and kill_grace, and a little
LOOK_EVERY_S = 0.05
_UNSETTLED = {"starting", "restarting", "draining"}


class DaemonNotUp(click.ClickException):
    """The daemon did not come up, or went away."""

    exit_code = ExitCode.NO

    def __init__(self, message: str, ended: int | None = None) -> None:
        super().__init__(message)
        self.ended = ended  # the daemon's exit code


class DirectoryInUse(click.ClickException):
    """Another daemon has the socket, as of a second demo in the same directory."""

    exit_code = ExitCode.TRY_LATER


@contextlib.contextmanager
def daemon(
    arguments: Sequence[str],
    *,
    database_url: str,
    log: IO[Any] | None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `pgflowd … serve` on this database until the block is left; log None: our stderr."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pgflowd", *arguments, "serve", "--recreate"],
        env={
            **os.environ,
            **(environ or {}),
            "PGFLOWD__DATABASE__URL": database_url,
            "PGFLOWD__DATABASE__LISTEN_URL": database_url,  # whatever the project's config says
        },
        stdin=subprocess.DEVNULL,
        stderr=log,
        start_new_session=True,  # Ctrl-C is for us; we ask it to stop
        preexec_fn=_end_with_us,
    )
    try:
        yield process
    finally:
        _stop(process)


def wait_until_settled(process: subprocess.Popen[bytes], socket: Path) -> dict[str, Any]:
    """Return what the daemon says of itself once each of its flows is up or parked."""
    from pgflowd.host import control

    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        if process.poll() == ExitCode.TRY_LATER:
            raise DirectoryInUse(f"another daemon serves at {socket}; it must end first")
        if process.returncode is not None:
            text = f"the daemon ended with exit code {process.returncode}"
            raise DaemonNotUp(text, process.returncode)
        with contextlib.suppress(OSError, ValueError):
            told = control.ask(socket, "status", 5.0)
            states = {told["state"], *(flow["state"] for flow in told["flows"])}
            if told["pid"] == process.pid and not states & _UNSETTLED:
                return told
        time.sleep(LOOK_EVERY_S)
    raise DaemonNotUp(f"the daemon did not come up within {START_TIMEOUT_S:.0f} s")


@contextlib.contextmanager
def interrupted_by_term() -> Iterator[None]:
    """Let SIGTERM mean Ctrl-C, and so SIGHUP, which a closed terminal sends."""
    signals = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as below nohup
        signals.append(signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_with_us() -> None:
    from pgflowd.host.fork import set_death_signal

    set_death_signal(signal.SIGTERM)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask, wait, and at the end kill."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    except KeyboardInterrupt:  # a second Ctrl-C: a quick stop
        process.terminate()
        process.wait()
