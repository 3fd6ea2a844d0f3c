"""
Dev: `pgflowd dev` serves a project while it is being changed.

An embedded PostgreSQL below `.pgflowd/`, the daemon with its log in this terminal, and a look
at the flows' files: a change reloads the daemon, and a flow whose shape has changed is created
anew with a warning. Other terminals find the database by themselves while this runs.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from pgflowd import __version__
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.daemon_client import socket_path
from pgflowd.cli.exits import ExitCode
from pgflowd.cli.groups import Command
from pgflowd.cli.local.local_daemon import (
    DaemonNotUp,
    daemon,
    interrupted_by_term,
    wait_until_settled,
)
from pgflowd.cli.local.new import TEMPLATES
from pgflowd.cli.params import NumberParam

if TYPE_CHECKING:
    from pgflowd.cli.local.dev_watch import Changes, Project
    from pgflowd.embedded import EmbeddedPostgres


@click.command(cls=Command)
@click.option("--port", type=NumberParam(1024, 65535), help="Where PostgreSQL listens.")
@click.option("--no-reload", is_flag=True, help="Do not watch the files.")
@click.option("--ephemeral", is_flag=True, help="Throw the data away at the end.")
@click.option("--reset", is_flag=True, help="Throw the data of earlier times away first.")
@pass_app
def dev(app: App, port: int | None, no_reload: bool, ephemeral: bool, reset: bool) -> None:
    """Serve this project while you change it, on a PostgreSQL of its own.

    Runs and what their handlers print are shown, with -v the whole log of the daemon. A change
    of a flow reloads the daemon. A flow whose steps have changed is created anew, and
    its runs are deleted: production refuses that. Variables of libpq such as PGHOST do not count.

    \b
    Example: pgflowd dev
    """
    from pgflowd.cli.local.dev_watch import Project, watching
    from pgflowd.host.dev_lock import DevAlreadyRunning, announce_url, unset_libpq_variables

    began = time.monotonic()
    unset_libpq_variables()
    root = Path(app.settings.file).absolute().parent if app.settings.file else Path.cwd()
    try:
        with (
            interrupted_by_term(),
            suppress(KeyboardInterrupt),
            _server(root, port, ephemeral=ephemeral, reset=reset) as postgres,
            announce_url(root, postgres.dsn),
            watching(root, wanted=not no_reload) as changes,
        ):
            _prepare(postgres.dsn)
            project = Project(app, root, postgres.dsn)
            _greet(app, postgres, ephemeral=ephemeral)
            while not _serve(app, project, changes, began):
                began = time.monotonic()
    except DevAlreadyRunning:
        app.note(f"another `pgflowd dev` runs in {root}")
        app.exit(ExitCode.TRY_LATER)
    app.note("  stopped")


def _serve(app: App, project: Project, changes: Changes | None, began: float) -> bool:
    """Serve until the daemon ends; False: nothing could be served, and now something changed."""
    from pgflowd.cli.local.dev_watch import follow_changes

    arguments = ["-c", app.settings.file] if app.settings.file else []
    with (
        _log(app) as (log, environ),
        daemon(arguments, database_url=project.dsn, log=log, environ=environ) as process,
    ):
        try:
            told = wait_until_settled(process, socket_path(app))
        except DaemonNotUp as error:
            if changes is None or error.ended not in {ExitCode.CONFIG, ExitCode.NO}:
                raise
            project.wait_for_better(changes)
            return False
        project.show(told)
        _say_ready(app, project, time.monotonic() - began)
        follow_changes(project, process, changes)
        if process.wait() != 0:
            app.exit(ExitCode.NO)  # it has ended by itself, and not as `pgflowd stop` asked
    return True


@contextmanager
def _log(app: App) -> Iterator[tuple[IO[bytes] | None, dict[str, str]]]:
    """Where the daemon logs to, and how: what matters to people, or with -v all of it."""
    from pgflowd.cli.local.dev_log import ENVIRON, retold

    if app.verbose:
        yield None, {}
        return
    with retold(lambda line: app.print(app.out.folded(app.shorten_paths(app.hide(line))))) as log:
        yield log, ENVIRON


@contextmanager
def _server(
    root: Path, port: int | None, *, ephemeral: bool, reset: bool
) -> Iterator[EmbeddedPostgres]:
    from pgflowd.embedded import EmbeddedPostgres
    from pgflowd.host.dev_lock import DevAlreadyRunning

    (root / ".pgflowd").mkdir(exist_ok=True)
    directory = root / ".pgflowd" / "pg"
    if ephemeral:
        directory = Path(tempfile.mkdtemp(prefix="pg-", dir=root / ".pgflowd"))
    elif reset and not EmbeddedPostgres(directory).discard():
        raise DevAlreadyRunning(str(root))
    try:
        with EmbeddedPostgres(directory, keep=not ephemeral, port=port or 0) as postgres:
            if port and postgres.port != port:
                app_port = f"PostgreSQL runs here already, on port {postgres.port}"
                raise click.UsageError(f"{app_port}; stop what uses it, or leave --port away")
            yield postgres
    finally:
        if ephemeral:
            shutil.rmtree(directory, ignore_errors=True)


def _prepare(dsn: str) -> None:
    """Install or upgrade the schema."""
    from pgflowd.db import schema
    from pgflowd.db.connection import connect

    with connect(dsn, name="pgflowd dev") as connection:
        schema.install(connection)


def _greet(app: App, postgres: EmbeddedPostgres, *, ephemeral: bool) -> None:
    kept = "thrown away at the end" if ephemeral else "kept; --ephemeral throws it away"
    text = (
        f"pgflowd {__version__} development   PostgreSQL {postgres.version}"
        f" (embedded, .pgflowd/pg, {kept})"
    )
    app.print(app.out.folded(text))
    app.print(f"  database {postgres.dsn}")
    sys.stdout.flush()


def _say_ready(app: App, project: Project, took_s: float) -> None:
    flow = next(iter(project.slugs), "")
    inputs = {kind.flow: kind.input for kind in TEMPLATES.values()}
    try_ = f"pgflowd runs start {flow} {shlex.quote(inputs.get(flow, '{}'))} --follow"
    app.print(
        f"{time.strftime('%H:%M:%S')} ready in {took_s:.1f} s.{f'  Try:  {try_}' * bool(flow)}"
    )
    sys.stdout.flush()
