"""
The commands that run until they are ended: `pgflowd serve`, the daemon in the foreground, `dev`,
`demo` and `top`. What they run is imported when they run.

The exit code of `serve` says why it ended (docs/reference/programs.md).
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Command
from pgflowd.cli.params import FLOW, NumberParam
from pgflowd.cli.terminal.screen import emit
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.statuses import RunStatus
from pgflowd.errors import ConfigError, Problem

if TYPE_CHECKING:
    from pgflowd.core.settings.sections import Settings

INSTALL_TOP = "pip install 'pgflowd[top]'"


@click.command(cls=Command)
@click.option(
    "--flow", "flows", type=FLOW, multiple=True, metavar="SLUG",
    help="Serve only this flow; may be repeated.",
)  # fmt: skip
@click.option("--recreate", is_flag=True, hidden=True)  # demo and dev start it with this option
@pass_app
def serve(app: App, flows: tuple[str, ...], recreate: bool) -> None:
    """Run the daemon in the foreground.

    It drains on TERM or Ctrl-C and stops quickly on a second one, reloads on HUP, and writes
    its state to the log on USR1. -v logs at level debug, -q only warnings and errors.

    \b
    Example: pgflowd serve -c pgflowd.toml
    """
    from pgflowd.host.control import SocketInUse, SocketPathError
    from pgflowd.host.fork import SignalPipe
    from pgflowd.processes.supervisor import loop

    signals = SignalPipe(loop.SIGNALS)
    read = partial(_read, app, recreate, Path.cwd())  # a reload finds the config from there, too
    try:
        code = loop.serve(read(), read, signals, flows)
    except SocketInUse as taken:
        emit(f"pgflowd: another daemon has {taken}", sys.stderr)
        app.exit(ExitCode.TRY_LATER)
    except SocketPathError as error:
        remedy = "set another path with control in [supervisor]"
        remedy = f"move it away, or {remedy}" if error.is_taken else remedy
        emit(f"pgflowd: the control socket cannot be made: {error}; {remedy}", sys.stderr)
        app.exit(ExitCode.DENIED if error.is_denied else ExitCode.CONFIG)
    signals.ignore()
    app.exit(ExitCode(code))


def _read(app: App, recreate: bool, here: Path) -> Settings:
    """Read the configuration for serving. ConfigError."""
    level = "debug" if app.verbose else "warning" if app.quiet else None
    app.command_flags = {
        "--verbose" if app.verbose else "--quiet": (("logging", "level"), level),
        "--recreate": (("pgflowd", "definitions"), "recreate" if recreate else None),
    }
    settings = app.read_settings(serving=True, cwd=here)
    if settings.pgflowd.definitions == "recreate" and not recreate:
        origin = settings.origin_of("pgflowd", "definitions")
        text = "[pgflowd] definitions is 'recreate', which would delete runs"
        remedy = "use 'create' or 'verify'; `pgflowd dev` and `demo` recreate flows by themselves"
        raise ConfigError([Problem("E106", text, origin.place, remedy)])
    return settings


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
        raise ConfigError([Problem("E503", "top needs more packages", None, INSTALL_TOP)])
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


class DemoRun(TypedDict):
    flow: str
    run_id: UUID
    status: Annotated[RunStatus, "how it ended"]
    took_s: Annotated[float, "how long it took"]
    output: Annotated[Any, "its output"]


class Demo(TypedDict):
    """What the demo did."""

    pgflowd: str
    postgresql: str
    directory: str
    dsn: Annotated[str, "the URL of the database"]
    runs: Annotated[list[DemoRun], "the runs of the examples"]
    tasks: Annotated[int, "how many tasks there were"]
    retries: Annotated[int, "how many attempts were retries"]


@click.command(cls=Command, prints=Demo)
@click.option("--once", is_flag=True, help="End when all runs have ended, not at Ctrl-C.")
@click.option("--keep", is_flag=True, help="Keep the data at the end.")
@pass_app
def demo(app: App, once: bool, keep: bool) -> None:
    """Run example flows on a PostgreSQL of their own.

    \b
    Example: pgflowd demo --once
    """
    from pgflowd.cli.local.demo import run_demo

    run_demo(app, once=once, keep=keep)


@click.command(cls=Command)
@click.option(
    "--port", type=NumberParam(1024, 65535), metavar="PORT", help="The port of PostgreSQL."
)
@click.option("--no-reload", is_flag=True, help="Do not watch the files.")
@click.option("--ephemeral", is_flag=True, help="Delete the data at the end.")
@click.option("--reset", is_flag=True, help="Delete existing data first.")
@pass_app
def dev(app: App, port: int | None, no_reload: bool, ephemeral: bool, reset: bool) -> None:
    """Serve this project while you change it, on a PostgreSQL of its own.

    Prints runs and the output of their handlers; with -v the whole log of the daemon. A change
    of a flow reloads the daemon. A flow whose steps have changed is recreated, and its runs are
    deleted; on a terminal it asks once whether to make it the next version instead. The url of
    the config and variables of libpq such as PGHOST are ignored. With --database-url it serves on
    that database, where it installs the schema, starts no server and recreates no flow.

    \b
    Example: pgflowd dev
             pgflowd dev --database-url postgresql://localhost/shop_dev
    """
    from pgflowd.cli.local.dev import serve_project

    serve_project(app, port, no_reload=no_reload, ephemeral=ephemeral, reset=reset)
