"""
Sends requests of commands to the running daemon.

`ask` returns the answer, or raises NotRunning (exit code 3) if no process has the socket, E414
if the daemon does not answer, and refuses (exit code 77) if the socket belongs to another user.
"""

from __future__ import annotations

import os
import select
from pathlib import Path
from shlex import quote
from typing import Any

import click

from pgflowd.cli.app import App, CommandRefused
from pgflowd.core.exit_codes import ExitCode
from pgflowd.errors import RunError
from pgflowd.host import control
from pgflowd.host.config import control_path

RELOAD_EXTRA_S = 60.0  # for stops after their grace, and for a reload that goes on already


class NotRunning(click.ClickException):
    """No daemon listens at the socket."""

    exit_code = ExitCode.NOT_RUNNING


def ask(app: App, command: str, timeout_s: float = 5.0, **arguments: Any) -> dict[str, Any]:
    """Send a command to the daemon of this configuration, and return its answer."""
    path = socket_path(app)
    try:
        return control.ask(path, command, timeout_s, **arguments)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        remedy = ask_elsewhere(app) or "`pgflowd serve` starts one"
        raise NotRunning(f"no daemon is running at {path}; {remedy}") from None
    except PermissionError:
        owner = control.owner_of(path) or "another user"
        text = f"{path} belongs to {owner}; ask as that user, or as root"
        raise CommandRefused(text, ExitCode.DENIED) from None
    except (OSError, ValueError) as error:
        is_full = isinstance(error, BlockingIOError)
        why = ": too many other requests wait for it" if is_full else ""
        text = f"the daemon at {path} does not answer{why}"
        raise RunError(text, code="E414", next="read its log, or try again") from None


def import_times(app: App) -> dict[str, float | None]:
    """How long the last import of each served flow took; nothing if no daemon answers."""
    try:
        status = ask(app, "status", timeout_s=1.0)
    except (click.ClickException, RunError):
        return {}
    return {flow["slug"]: flow["import_s"] for flow in status["flows"]}


def ask_to_reload(app: App) -> dict[str, Any]:
    """Reload the daemon; it answers when drains and starts of changed flows have ended."""
    supervisor = app.settings.supervisor
    limit_s = RELOAD_EXTRA_S + supervisor.drain_timeout_s + 2 * supervisor.start_timeout_s
    return ask(app, "reload", limit_s)


def socket_path(app: App) -> Path:
    return Path(control_path(app.settings))


def ask_elsewhere(app: App) -> str | None:
    """Say how to ask a daemon of this name that listens in another runtime directory."""
    if app.settings.supervisor.control:
        return None
    other = next(control.other_daemons(app.settings.pgflowd.name), None)
    if other is None:
        return None
    variable = f"PGFLOWD__SUPERVISOR__CONTROL={quote(str(other.socket))}"
    return f"{other.user} has one, which answers with {variable}"


def wait_for_end(pid: int) -> None:
    """Wait until the daemon's process has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([handle], [], [])
    finally:
        os.close(handle)
