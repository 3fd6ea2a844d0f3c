"""
`pgflowd serve`: the daemon in the foreground.

It runs until a signal or `pgflowd stop` ends it. The exit code says why
(docs/reference/programs.md).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Command
from pgflowd.cli.params import FLOW
from pgflowd.cli.terminal.screen import emit
from pgflowd.core.exit_codes import ExitCode
from pgflowd.errors import ConfigError, Problem

if TYPE_CHECKING:
    from pgflowd.core.settings.sections import Settings


@click.command(cls=Command)
@click.option(
    "--flow",
    "flows",
    type=FLOW,
    multiple=True,
    metavar="SLUG",
    help="Serve only this flow; may be repeated.",
)
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
    from pgflowd.processes.supervisor import loop

    signals = loop.take_signals()

    here = Path.cwd()  # a reload finds the config from there, too

    def read() -> Settings:
        return _read(app, recreate, here)

    settings = read()
    try:
        code = loop.serve(settings, read, signals, flows)
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
    from pgflowd.host.config import load

    level = "debug" if app.verbose else "warning" if app.quiet else None
    flags = {
        "--verbose" if app.verbose else "--quiet": (("logging", "level"), level),
        "--database-url": (("database", "url"), app.flag_database_url),
        "--recreate": (("pgflowd", "definitions"), "recreate" if recreate else None),
    }
    settings = load(config=app.config, instance=app.instance, flags=flags, serving=True, cwd=here)
    if settings.pgflowd.definitions == "recreate" and not recreate:
        origin = settings.origin_of("pgflowd", "definitions")
        text = "[pgflowd] definitions is 'recreate', which would delete runs"
        remedy = "use 'create' or 'verify'; `pgflowd dev` and `demo` recreate flows by themselves"
        raise ConfigError([Problem("E106", text, origin.place, remedy)])
    return settings
