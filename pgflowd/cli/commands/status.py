"""
`pgflowd status` and `pgflowd tree`: the state of the daemon, for people or as JSON.

Without a daemon `status` prints facts from the database, and the exit code is 3. `--check`
prints nothing; its exit code is 0 if the daemon is healthy, 1 if not, 3 if it is not running.
"""

from __future__ import annotations

import time
from typing import Any, NoReturn

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.daemon_client import NotRunning, ask, ask_elsewhere, socket_path
from pgflowd.cli.groups import Command
from pgflowd.cli.params import DURATION
from pgflowd.cli.terminal.daemon_view import (
    any_waits,
    database_lines,
    problem_lines,
    status_lines,
    tree_lines,
)
from pgflowd.core.documents.daemon import DaemonStatus, NoDaemonStatus
from pgflowd.core.documents.daemon_status import status_without_daemon
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.statuses import DaemonState, DatabaseState
from pgflowd.errors import PgflowdError, Unreachable

SHOWN = DaemonStatus | NoDaemonStatus
_HOME_AND_CLEAR = "\x1b[H\x1b[J"


@click.command(cls=Command, prints={"": SHOWN, "--watch": SHOWN, "--metrics": None})
@click.option(
    "--watch", type=DURATION, metavar="[DUR]", is_flag=False, flag_value="2s",
    help="Repeat; by default every 2s.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Print nothing; the exit code is 0 if healthy.")
@click.option("--metrics", is_flag=True, help="Print OpenMetrics text.")
@pass_app
def status(app: App, watch: float | None, check: bool, metrics: bool) -> None:
    """Show the state of the daemon and its flows.

    \b
    Example: pgflowd status --watch 5s
    """
    if watch == 0:
        raise click.BadParameter("it must be longer than 0s", param_hint="--watch")
    if metrics and not check:
        app.print(_metrics(app).removesuffix("\n"))
        return
    if watch and not check:
        _watch(app, watch)
    try:
        document = ask(app, "status")
    except NotRunning:
        if not check:
            _show_database(app)
        app.exit(ExitCode.NOT_RUNNING)
    if check:
        app.exit(ExitCode.OK if document.get("state") == DaemonState.HEALTHY else ExitCode.NO)
    app.print_result("\n".join(status_lines(document, app.out, is_full=app.verbose)), document)


@click.command(cls=Command, prints=SHOWN)
@pass_app
def tree(app: App) -> None:
    """Show the daemon's processes, their states and restarts.

    \b
    Example: pgflowd tree
    """
    document = ask(app, "status")
    app.print_result("\n".join(tree_lines(document, app.out)), document)


def _metrics(app: App) -> str:
    """The text of the metrics, with all histograms."""
    from pgflowd.core.metrics.exposition import exposition
    from pgflowd.host.process_use import ProcessUse

    numbers = ask(app, "metrics")
    return exposition(numbers, ProcessUse().of(numbers["status"]))


def _watch(app: App, pause_s: float) -> NoReturn:
    """Show the status again and again, until interrupted."""
    while True:
        document = ask(app, "status")
        if app.json:
            app.print_json_line(document)
        else:
            home = _HOME_AND_CLEAR if app.out.redraws else ""
            lines = status_lines(document, app.out, is_full=app.verbose)
            app.print("\n".join(lines), cursor=home)
        time.sleep(pause_s)


def _show_database(app: App) -> None:
    """Print facts from the database."""
    document = _without_daemon(app)
    if app.json:
        app.print_document(document)
        return
    app.note(f"no daemon is running at {socket_path(app)}; this is from the database")
    if elsewhere := ask_elsewhere(app):
        app.note(elsewhere)
    database = document["database"]
    app.print("\n".join(database_lines(database, app.out)))
    rows = [[flow["slug"], str(flow["queued"]), str(flow["waiting"])] for flow in document["flows"]]
    if any_waits(document["flows"]):
        app.print_table(["FLOW", "QUEUED", "WAITING"], rows, right=["QUEUED", "WAITING"])
    elif rows:
        app.print_table(["FLOW", "QUEUED"], [row[:2] for row in rows], right=["QUEUED"])
    for line in problem_lines(document["problems"], app.out):
        app.print(line)


def _without_daemon(app: App) -> dict[str, Any]:
    database: dict[str, Any] = {
        "state": DatabaseState.DOWN,
        "server": None,
        "place": None,
        "schema": None,
    }
    queues: list[tuple[str, int, float | None]] = []
    waits: dict[str, dict[str, int]] = {}
    problems: list[dict[str, Any]] = []
    try:
        database, queues, waits = _ask_database(app)
    except PgflowdError as error:
        is_down = isinstance(error, Unreachable)
        database["state"] = DatabaseState.DOWN if is_down else DatabaseState.UP
        problems = [
            {"code": each.code, "flow": None, "text": app.hide(each.text), "next": each.next}
            for each in error.problems
        ]
    return status_without_daemon(app.settings.pgflowd.name, database, queues, waits, problems)


def _ask_database(
    app: App,
) -> tuple[dict[str, Any], list[tuple[str, int, float | None]], dict[str, dict[str, int]]]:
    from pgflowd.db import schema
    from pgflowd.db.connection import connect, translated
    from pgflowd.db.flows import queued_messages
    from pgflowd.db.query import execute
    from pgflowd.db.waits import waiting_tasks

    with connect(app.database_url, name="pgflowd: status") as conn, translated(conn):
        schema.refuse_newer(conn)
        server = conn.info.parameter_status("server_version") or ""
        queues, waits = queued_messages(conn), execute(conn, waiting_tasks())
        place = f"{conn.info.host}:{conn.info.port}/{conn.info.dbname}"
    database = {"state": DatabaseState.UP, "server": server.partition(" ")[0], "place": place}
    return database, queues, waits
