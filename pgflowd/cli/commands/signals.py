"""`pgflowd signals`: who told which run what, and which task got it."""

from __future__ import annotations

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Group
from pgflowd.cli.lookup import find_run
from pgflowd.cli.params import LIMIT_OPTION, RUN
from pgflowd.cli.terminal.task_view import print_signals
from pgflowd.core.documents.waits import Signals


@click.group(cls=Group)
def signals() -> None:
    """List the signals that were sent to runs.

    `runs signal` sends one.

    \b
    Example: pgflowd signals list --open
    """


@signals.command("list", prints=Signals)
@click.option("--run", type=RUN, metavar="RUN", help="Only signals of this run.")
@click.option("--open", "only_open", is_flag=True, help="Only those that no task has got.")
@LIMIT_OPTION
@pass_app
def list_(app: App, run: str | None, only_open: bool, limit: int) -> None:
    """List the newest signals.

    \b
    Example: pgflowd signals list --run @last
    """
    from pgflowd.db.query import database_time, execute
    from pgflowd.db.waits import list_signals

    with database(app) as conn:
        run_id = None if run is None else find_run(conn, run)
        found = execute(conn, list_signals(run_id, only_open, limit))
        now = execute(conn, database_time())
    if app.json:
        app.print_document(Signals(found))
    elif found:
        print_signals(app, found, now)
    else:
        app.note("there are no such signals" if run or only_open else "there are no signals yet")
