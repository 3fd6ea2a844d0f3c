"""`pgflowd top`: a live view of flows and runs on a terminal."""

from __future__ import annotations

import os
import signal
import sys

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Command


@click.command(cls=Command)
@pass_app
def top(app: App) -> None:
    """Show flows and runs live on a terminal, and act on them by keys; ? lists them.

    \b
    Example: pgflowd top
    """
    if app.json:
        raise click.UsageError("top is for people; `pgflowd status --watch --json` is for programs")
    if not (sys.stdin.isatty() and app.out.redraws):
        text = "top needs a terminal; `pgflowd status --watch` prints to anything"
        raise click.ClickException(text)
    from pgflowd.cli.top.loop import Loop
    from pgflowd.cli.top.source import TopSource
    from pgflowd.cli.top.terminal import HungUp, Signalled, own_terminal

    _ = app.database_url  # what is wrong with the config is said before the screen is taken
    source = TopSource(app)
    try:
        with own_terminal() as terminal:
            Loop(app, terminal, source).run()
    except HungUp:
        return
    except Signalled as ended:  # as whoever sent the signal expects
        signal.signal(ended.number, signal.SIG_DFL)
        os.kill(os.getpid(), ended.number)
    finally:
        source.close()
