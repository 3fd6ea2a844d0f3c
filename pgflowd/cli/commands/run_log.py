"""`pgflowd runs log`: what happened in a run, from the database and without a daemon."""

from __future__ import annotations

from functools import partial

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database, reconnector
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import find_run
from pgflowd.cli.params import RUN
from pgflowd.cli.terminal.history_view import LogWriter
from pgflowd.core.documents.history import is_over


@click.command(cls=Command)
@click.argument("run", metavar="RUN", type=RUN)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@pass_app
def log(app: App, run: str, follow: bool) -> None:
    """Show what happened in a run: its steps and attempts, its waits, and who did what.

    \b
    Example: pgflowd runs log @last
             pgflowd runs log 7f3a9c12 --follow
    """
    from pgflowd.cli.log_follower import LogFollower
    from pgflowd.db import history, operations

    with database(app) as conn:
        run_id = find_run(conn, run)
        events = operations.run_sync(conn, operations.timeline(run_id, None))
        writer = LogWriter(app)
        if follow:
            log = LogFollower(conn, partial(history.timeline, run_id), reconnector(app))
            for event in log.follow(is_over):
                writer.write_event(event)
            return
    if app.json:
        app.print_document(events=[event.to_json() for event in events])
        return
    for event in events:
        writer.write_event(event)
