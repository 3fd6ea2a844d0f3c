"""`pgflowd top`: a live view of flows and runs on a terminal."""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Command
from pgflowd.core.exit_codes import ExitCode
from pgflowd.errors import ConfigError, Problem

INSTALL = "pip install 'pgflowd[top]'"


@click.command(cls=Command)
@pass_app
def top(app: App) -> None:
    """Show flows and runs live on a terminal, and act on them by keys; ? lists them.

    \b
    Example: pgflowd top
    """
    if app.json:
        raise click.UsageError("top is for people; `pgflowd status --watch --json` is for programs")
    if not (sys.stdin.isatty() and sys.stderr.isatty() and app.out.redraws):
        text = "top needs a terminal; `pgflowd status --watch` prints to anything"
        raise click.ClickException(text)
    if find_spec("textual") is None:
        raise ConfigError([Problem("E503", "top needs more packages", None, INSTALL)])
    from pgflowd.cli.top.live import Top
    from pgflowd.cli.top.source import TopSource

    _ = app.database_url  # what is wrong with the config is said before the screen is taken
    for name in ("COLUMNS", "LINES"):  # a shell may export them; Textual would keep to them
        os.environ.pop(name, None)
    live = Top(app, TopSource(app))
    code = live.run()
    if live.crash is not None:
        raise live.crash
    if live.ended_by not in (None, signal.SIGINT):  # as whoever sent the signal expects
        signal.signal(live.ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), live.ended_by)
    app.exit(code or ExitCode.OK)
