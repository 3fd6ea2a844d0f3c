"""
Daemon line: how commands ask the running daemon, and what they say when it does not answer.

`ask` returns the answer or raises: NotRunning (exit 3) when nobody has the socket, E414 when
somebody has it and is silent, exit 77 when the socket is not ours.
"""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import Any

import click

from pgflowd.cli.app import App
from pgflowd.cli.exits import ExitCode
from pgflowd.errors import RunError


class NotRunning(click.ClickException):
    """No daemon listens there."""

    exit_code = ExitCode.NOT_RUNNING


class Denied(click.ClickException):
    """The socket belongs to somebody else."""

    exit_code = ExitCode.DENIED


def ask(app: App, command: str, timeout_s: float = 5.0, **arguments: Any) -> dict[str, Any]:
    """Ask the daemon of this configuration."""
    from pgflowd.host import control

    path = socket_path(app)
    try:
        return control.ask(path, command, timeout_s, **arguments)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        text = f"no daemon is running at {path}; `pgflowd serve` starts one"
        raise NotRunning(text) from None
    except PermissionError:
        raise Denied(f"{path} belongs to another user; ask as that user, or as root") from None
    except (OSError, ValueError):
        raise RunError(
            f"the daemon at {path} does not answer",
            code="E414",
            next="look at its log, or try again",
        ) from None


def socket_path(app: App) -> Path:
    from pgflowd.host.config import control_path

    return Path(control_path(app.settings))


def wait_for_end(pid: int) -> None:
    """Wait until the daemon is gone."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([handle], [], [])
    finally:
        os.close(handle)
