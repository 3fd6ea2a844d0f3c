"""
`pgflowd demo`: runs four example flows in a real daemon, on an embedded PostgreSQL.

The data are in a directory below the current one, or in a temporary one if that cannot be
written. At the end they are removed, unless `--keep` is given.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgflowd import __version__
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Command
from pgflowd.cli.local.local_daemon import (
    DaemonNotUp,
    daemon,
    interrupted_by_term,
    wait_until_settled,
)
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.settings.rules import MAX_SOCKET_PATH_BYTES
from pgflowd.core.text import duration

if TYPE_CHECKING:
    from pgflowd.embedded import EmbeddedPostgres

DIRECTORY = Path(".pgflowd", "demo")
CONFIG = """\
# The demo's configuration, for the commands it suggests.
[pgflowd]
name  = "demo"
flows = ["pgflowd.examples.analyze_website", "pgflowd.examples.resize_images",
         "pgflowd.examples.flaky_payment", "pgflowd.examples.undone_payment"]
[database]
url = "file:url"
[supervisor]
control = {control}
[logging]
format = "text"
"""
OWN_SERVER = "the demo has a PostgreSQL of its own; `pgflowd dev` takes --database-url"
_LAST_LINES = 2  # of the daemon's log, in the error that it did not start


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="End when all runs have ended, not at Ctrl-C.")
@click.option("--keep", is_flag=True, help="Keep the data at the end.")
@pass_app
def demo(app: App, once: bool, keep: bool) -> None:
    """Run example flows on a PostgreSQL of their own.

    \b
    Example: pgflowd demo --once
    """
    from pgflowd.db import schema
    from pgflowd.db.connection import connect
    from pgflowd.embedded import EmbeddedPostgres

    if app.flag_database_url is not None:
        raise click.UsageError(OWN_SERVER)
    # variables of pgflowd and libpq are for a project or its database
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]
    with (
        interrupted_by_term(),
        _data_directory() as directory,
        EmbeddedPostgres(directory, keep=keep) as postgres,
        _control_socket(directory) as socket,
    ):
        began = time.monotonic()
        with connect(postgres.dsn) as connection:
            schema.install(connection)
        _print_header(app, directory, postgres, time.monotonic() - began)
        config = _configure(directory, postgres.dsn, socket)
        went_well = _serve(app, config, postgres, socket, once=once, keep=keep)
        if not went_well:
            app.exit(ExitCode.NO)


def _serve(
    app: App, config: Path, postgres: EmbeddedPostgres, socket: Path, *, once: bool, keep: bool
) -> bool:
    """Serve the examples until their runs have ended, or until Ctrl-C. Whether all went well."""
    from pgflowd.cli.local.demo_runs import DemoRuns
    from pgflowd.cli.local.local_web import local_web
    from pgflowd.db.connection import connect

    log_path, words = config.with_name("daemon.log"), ["-c", str(config)]
    with (
        log_path.open("ab") as log,
        daemon(words, database_url=postgres.dsn, log=log) as process,
        nullcontext() if once or app.json else local_web(app, words, postgres.dsn) as web,
    ):
        with _log_end_in_error(log_path):
            wait_until_settled(process, socket)
        with connect(postgres.dsn) as connection:
            runs = DemoRuns(app, connection)
            went_well, summary = runs.watch(), runs.summary()
            with suppress(KeyboardInterrupt):
                link = web.link() if web else None
                _print_next_steps(app, config, summary, postgres, link, once=once, keep=keep)
                if not once:
                    runs.go_on(starts=link is not None)
    return went_well


def _print_header(app: App, directory: Path, postgres: EmbeddedPostgres, schema_s: float) -> None:
    from pgflowd.cli.local.demo_runs import EXAMPLES

    if not app.json:
        text = (
            f"pgflowd {__version__} demo   PostgreSQL {postgres.version} (embedded, {directory})"
            f"   schema installed in {duration(schema_s)}   {len(EXAMPLES)} example flows"
        )
        app.print(app.out.folded(text))


def _configure(directory: Path, dsn: str, socket: Path) -> Path:
    from pgflowd.core.settings.show import toml_value

    config, url = directory / "pgflowd.toml", directory / "url"
    config.write_text(CONFIG.format(control=toml_value(str(socket))))
    url.touch(0o600)
    url.write_text(dsn)
    return config


def _print_next_steps(
    app: App,
    config: Path,
    summary: dict[str, Any],
    postgres: EmbeddedPostgres,
    link: str | None,
    *,
    once: bool,
    keep: bool,
) -> None:
    from pgflowd.cli.local.demo_runs import NEXT_RUN_S

    if app.json:
        app.print_document(
            pgflowd=__version__, postgresql=postgres.version,
            directory=str(config.parent), dsn=postgres.dsn, **summary,
        )  # fmt: skip
        return
    runs, tasks, retries = len(summary["runs"]), summary["tasks"], summary["retries"]
    counted = f"{runs} runs, {tasks} tasks, {retries} retries."
    ends = "ends it and " + ("keeps the data" if keep else "removes the data (--keep keeps them)")
    ended = f"  {counted}" if once else f"  {counted}  Still serving; Ctrl-C {ends}."
    app.print(app.out.folded(ended))
    steps = [("pgflowd new shop && cd shop && pgflowd dev", "your own project")]
    if once:
        steps.append(("pgflowd demo", "keep it running, and see its runs move in a browser"))
    else:
        steps.insert(0, (f"pgflowd -c {config} runs list", "list the runs, in another terminal"))
    if link:
        steps.append((link, f"see runs move, in a browser; one starts every {NEXT_RUN_S:g} s"))
    app.print("\n".join(app.out.commands("next", app.with_activation(steps))))


@contextmanager
def _log_end_in_error(log: Path) -> Iterator[None]:
    """If the daemon does not start, add the end of its log to the error; the log is deleted."""
    try:
        yield
    except DaemonNotUp as error:
        lines = log.read_text(errors="replace").splitlines()
        end = " / ".join([line for line in lines if " info " not in line][-_LAST_LINES:])
        text = f"{error.message}: {end}" if end else error.message
        raise DaemonNotUp(text, error.daemon_exit_code) from None


@contextmanager
def _control_socket(directory: Path) -> Iterator[Path]:
    """Yield a path for the control socket, in a temporary directory if this one is too long."""
    path = directory.absolute() / "run" / "demo.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="pgflowd-") as short:
        yield Path(short, "demo.sock")


@contextmanager
def _data_directory() -> Iterator[Path]:
    """Yield a directory for the database, and remove its parent at the end if it is empty."""
    Path.cwd()  # raises if it was removed; another directory for the data would not help
    parent = DIRECTORY.parent
    with suppress(OSError):
        parent.mkdir(exist_ok=True)
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        parent = Path(tempfile.mkdtemp(prefix="pgflowd-demo-"))
        parent.chmod(0o711)  # the server may run as another user
    try:
        yield parent / DIRECTORY.name
    finally:
        with suppress(OSError):
            parent.rmdir()
