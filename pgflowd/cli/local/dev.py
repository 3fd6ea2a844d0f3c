"""
`pgflowd dev`: serves a project during its development.

It runs an embedded PostgreSQL below `.pgflowd/` and a daemon that logs to this terminal, and
watches the project's files. A change reloads the daemon. A flow whose shape has changed is
recreated, with a warning. Commands in other terminals find the database while this runs.

`--database-url` names another database. Its data may be needed elsewhere, so there a changed shape
is refused, as in production.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from pgflowd import __version__
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.daemon_client import socket_path
from pgflowd.cli.groups import Command
from pgflowd.cli.local.local_daemon import (
    STOP_TIMEOUT_S,
    DaemonNotUp,
    daemon,
    interrupted_by_term,
    wait_until_settled,
)
from pgflowd.cli.local.local_web import LocalWeb, local_web
from pgflowd.cli.local.new import TEMPLATES
from pgflowd.cli.params import NumberParam
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.text import duration

if TYPE_CHECKING:
    from pgflowd.cli.local.dev_database import DevDatabase
    from pgflowd.cli.local.dev_watch import Changes, Project


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
    from pgflowd.cli.local.dev_database import dev_database
    from pgflowd.cli.local.dev_watch import Changes, Project
    from pgflowd.core.settings.rules import missing_flows
    from pgflowd.errors import ConfigError
    from pgflowd.host.dev_lock import DevAlreadyRunning, announce_url

    if not app.settings.file and (problems := missing_flows(app.settings, "pgflowd.toml")):
        raise ConfigError(problems)  # no project: a server and its data would be of no use
    began_at = time.monotonic()
    root = Path(app.settings.file).absolute().parent if app.settings.file else Path.cwd()
    try:
        with (
            interrupted_by_term(),
            suppress(KeyboardInterrupt),
            dev_database(app, root, port, ephemeral=ephemeral, reset=reset) as database,
            announce_url(root, database.url),
            local_web(app, _config(app), database.url) as web,
            nullcontext() if no_reload else Changes(root) as changes,
        ):
            project = Project(app, root, database.url)
            _print_header(app, database)
            while not _serve(app, project, changes, web, began_at):
                began_at = time.monotonic()
    except DevAlreadyRunning:
        app.note(f"another `pgflowd dev` runs in {root}")
        app.exit(ExitCode.TRY_LATER)
    app.note("  stopped")


def _config(app: App) -> list[str]:
    """The words that name the project's config to a child."""
    return ["-c", app.settings.file] if app.settings.file else []


def _serve(
    app: App, project: Project, changes: Changes | None, web: LocalWeb, began_at: float
) -> bool:
    """Serve until the daemon ends. False: no flow could be served; try again after a change."""
    from pgflowd.cli.local.dev_watch import follow_changes
    from pgflowd.cli.local.waits import of_start, telling, telling_the_end

    socket = socket_path(app)
    limit_s = min(app.settings.supervisor.drain_timeout_s, STOP_TIMEOUT_S)
    with (
        _log(app) as (log, environ),
        daemon(
            _config(app),
            database_url=project.dsn,
            log=log,
            environ=environ,
            may_recreate=app.flag_database_url is None,
            ending=partial(telling_the_end, app, socket, limit_s),
        ) as process,
    ):
        try:
            with telling(app, socket, of_start(app.settings.pgflowd.flows)):
                status = wait_until_settled(process, socket)
            project.show(status)
            _print_ready(app, project, web.link(), time.monotonic() - began_at)
            follow_changes(project, process, changes)
            if (code := process.wait()) != 0:  # it ended without `pgflowd stop`
                raise DaemonNotUp(f"the daemon ended with exit code {code}", code)
        except DaemonNotUp as error:
            if changes is None or error.daemon_exit_code not in {ExitCode.CONFIG, ExitCode.NO}:
                raise
            project.wait_for_valid_config(changes)
            return False
    return True


@contextmanager
def _log(app: App) -> Iterator[tuple[IO[bytes] | None, dict[str, str]]]:
    """Yield the daemon's log and its environment: the important records, or with -v all."""
    from pgflowd.cli.local.dev_log import ENVIRON, log_pipe, print_record

    if app.verbose:
        yield None, {}
        return
    with log_pipe(partial(print_record, app)) as log:
        yield log, ENVIRON


def _print_header(app: App, database: DevDatabase) -> None:
    server = f"PostgreSQL {database.version} ({database.about})"
    app.print(app.out.folded(f"pgflowd {__version__} development   {server}"))
    app.print(f"  database {app.hide(database.url) or 'of the environment'}")


def _print_ready(app: App, project: Project, link: str | None, took_s: float) -> None:
    flow = next(iter(project.slugs), "")
    inputs = {kind.flow: kind.input for kind in TEMPLATES.values()}
    app.print(f"{time.strftime('%H:%M:%S')} ready in {duration(took_s)}")
    commands = []
    if flow:
        command = f"pgflowd runs start {flow} {shlex.quote(inputs.get(flow, '{}'))} --follow"
        commands.append((command, "in another terminal"))
    if link:
        commands.append((link, "in a browser"))
    if commands:
        app.print("\n".join(app.out.commands("try", commands)))
