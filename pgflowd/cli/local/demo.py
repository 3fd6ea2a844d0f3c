"""
Demo: `pgflowd demo` shows it at work, on a database of its own.

Three example flows run in a real daemon, beside an embedded PostgreSQL in a directory below
the current one, or in a temporary one where that cannot be written. At the end the data are
removed, unless they are to be kept.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgflowd import __version__
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.exits import ExitCode
from pgflowd.cli.groups import Command
from pgflowd.cli.local.local_daemon import (
    DaemonNotUp,
    daemon,
    interrupted_by_term,
    wait_until_settled,
)

if TYPE_CHECKING:
    from pgflowd.embedded import EmbeddedPostgres

DIRECTORY = Path(".pgflowd", "demo")
CONFIG = """\
# The demo's configuration, for the commands it suggests.
[pgflowd]
name  = "demo"
flows = ["pgflowd.examples.analyze_website", "pgflowd.examples.resize_images",
         "pgflowd.examples.flaky_payment"]
[database]
url = "file:url"
[supervisor]
control = {control}
[logging]
format = "text"
"""
_LAST_LINES = 2  # of what the daemon logged as trouble
_LONGEST_SOCKET = 100  # bytes; the kernel takes 107


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="End when all is shown, instead of at Ctrl-C.")
@click.option("--keep", is_flag=True, help="Leave the data when it ends.")
@pass_app
def demo(app: App, once: bool, keep: bool) -> None:
    """Show it at work, on a PostgreSQL of its own.

    \b
    Example: pgflowd demo --once
    """
    from pgflowd.cli.local.demo_show import Shows
    from pgflowd.db import schema
    from pgflowd.db.connection import connect
    from pgflowd.embedded import EmbeddedPostgres

    _forget_settings()
    with (
        interrupted_by_term(),
        _place() as directory,
        EmbeddedPostgres(directory, keep=keep) as postgres,
        _sockets(directory) as socket,
    ):
        began = time.monotonic()
        with connect(postgres.dsn) as connection:
            schema.install(connection)
        _greet(app, directory, postgres, time.monotonic() - began)
        config = _configure(directory, postgres.dsn, socket)
        log = (directory / "daemon.log").open("ab")
        with log, daemon(["-c", str(config)], database_url=postgres.dsn, log=log) as process:
            with _last_words(directory / "daemon.log"):
                wait_until_settled(process, socket)
            with connect(postgres.dsn) as connection:
                shows = Shows(app, connection)
                went_well, told = shows.watch(), shows.told()
            with suppress(KeyboardInterrupt):
                _say_what_is_next(app, config, told, postgres, once=once, keep=keep)
                sys.stdout.flush()
                while not once:
                    time.sleep(0.2)  # a pause() could begin just after the signal it waits for
        if not went_well:
            app.exit(ExitCode.NO)


def _greet(app: App, directory: Path, postgres: EmbeddedPostgres, schema_s: float) -> None:
    if not app.json:
        text = (
            f"pgflowd {__version__} demo   PostgreSQL {postgres.version} (embedded, {directory})"
            f"   schema installed in {schema_s:.1f} s   3 example flows"
        )
        app.print(app.out.folded(text))
        sys.stdout.flush()


def _configure(directory: Path, dsn: str, socket: Path) -> Path:
    from pgflowd.core.settings.show import toml_value

    config, url = directory / "pgflowd.toml", directory / "url"
    config.write_text(CONFIG.format(control=toml_value(str(socket))))
    url.touch(0o600)
    url.write_text(dsn)
    return config


def _say_what_is_next(
    app: App,
    config: Path,
    told: dict[str, Any],
    postgres: EmbeddedPostgres,
    *,
    once: bool,
    keep: bool,
) -> None:
    if app.json:
        where = {"directory": str(config.parent), "dsn": postgres.dsn}
        versions = {"pgflowd": __version__, "postgresql": postgres.version}
        app.print_json({"schema_version": 1, **versions, **where, **told})
        return
    counted = f"{len(told['runs'])} runs, {told['tasks']} tasks, {told['retries']} retries."
    ends = "ends it (the data stay)" if keep else "ends it and removes the data (--keep leaves it)"
    ended = f"  {counted}" if once else f"  {counted}  Still serving; Ctrl-C {ends}."
    app.print(app.out.folded(ended))
    look = "pgflowd demo" if once else f"pgflowd -c {config} runs list"
    why = "keep it serving, to look around" if once else "look around, in another terminal"
    own = ("pgflowd new shop && cd shop && pgflowd dev", "your own project")
    app.print("\n".join(app.out.commands("next", app.with_activation([(look, why), own]))))


def _forget_settings() -> None:
    """Drop our variables and those of libpq: they are meant for a project, or for its database."""
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]


@contextmanager
def _last_words(log: Path) -> Iterator[None]:
    """When the daemon does not come up, show the end of its log, which goes with the data."""
    try:
        yield
    except DaemonNotUp as error:
        lines = log.read_text(errors="replace").splitlines()
        end = " / ".join([line for line in lines if " info " not in line][-_LAST_LINES:])
        text = f"{error.message}: {end}" if end else error.message
        raise DaemonNotUp(text, error.ended) from None


@contextmanager
def _sockets(directory: Path) -> Iterator[Path]:
    """Give a path for the control socket, elsewhere where the directory's is too long."""
    here = directory.absolute() / "run" / "demo.sock"
    if len(os.fsencode(here)) <= _LONGEST_SOCKET:
        yield here
        return
    with tempfile.TemporaryDirectory(prefix="pgflowd-") as short:
        yield Path(short, "demo.sock")


@contextmanager
def _place() -> Iterator[Path]:
    """Give a directory for the database, and remove what is empty afterwards."""
    above = _writable_parent()
    made = above is None
    above = above or Path(tempfile.mkdtemp(prefix="pgflowd-demo-"))
    if made:
        above.chmod(0o711)  # the server may run as another user
    try:
        yield above / DIRECTORY.name
    finally:
        with suppress(OSError):
            above.rmdir()


def _writable_parent() -> Path | None:
    Path.cwd()  # raises where it was removed; another place for the data would not help
    parent = DIRECTORY.parent
    try:
        parent.mkdir(exist_ok=True)
    except OSError:
        return None
    return parent if os.access(parent, os.W_OK | os.X_OK) else None
