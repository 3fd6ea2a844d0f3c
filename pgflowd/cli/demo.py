"""
Demo: `pgflowd demo` shows it at work, on a database of its own.

The embedded PostgreSQL gets a directory below the current one, or a temporary one where that
cannot be written. At the end the data are removed, unless they are to be kept.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from pgflowd import __version__
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.frame import Command

DIRECTORY = Path(".pgflowd", "demo")


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="End when all is shown, instead of at Ctrl-C.")
@click.option("--keep", is_flag=True, help="Leave the data when it ends.")
@pass_app
def demo(app: App, once: bool, keep: bool) -> None:
    """Show it at work, on a PostgreSQL of its own.

    \b
    Example: pgflowd demo --once
    """
    from pgflowd.db import schema
    from pgflowd.db.connection import connect
    from pgflowd.host.postgres import EmbeddedPostgres

    with _place() as directory, EmbeddedPostgres(directory, keep=keep) as postgres:
        began = time.monotonic()
        with connect(postgres.dsn) as connection:
            schema.install(connection)
        schema_s = time.monotonic() - began
        if app.json:
            told = {"pgflowd": __version__, "postgresql": postgres.version}
            where = {"directory": str(directory), "dsn": postgres.dsn}
            app.echo_json({"schema_version": 1, **told, **where, "schema_s": round(schema_s, 3)})
        else:
            app.say(
                f"pgflowd {__version__} demo   PostgreSQL {postgres.version} "
                f"(embedded, {directory})   schema installed in {schema_s:.1f} s"
            )
            app.say("  This version has the database part only: no daemon, hence no flow runs yet.")
            _say_what_is_next(app, postgres.dsn, once=once, keep=keep)
        sys.stdout.flush()
        if not once:
            _until_interrupted()


def _say_what_is_next(app: App, dsn: str, *, once: bool, keep: bool) -> None:
    if once:
        app.say("  next   pgflowd demo           leaves the database up, to look around in it")
        return
    ends = "ends it (the data stay)" if keep else "ends it and removes the data (--keep leaves it)"
    app.say(f"  Still up; Ctrl-C {ends}.")
    app.say(f"  next   psql {shlex.quote(dsn)}")


def _until_interrupted() -> None:
    """Wait for Ctrl-C, or for SIGTERM, which here means the same."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            while True:
                signal.pause()
    finally:
        signal.signal(signal.SIGTERM, before)


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
    parent = DIRECTORY.parent
    try:
        parent.mkdir(exist_ok=True)
    except OSError:
        return None
    return parent if os.access(parent, os.W_OK | os.X_OK) else None
