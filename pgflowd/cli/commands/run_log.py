"""`pgflowd runs log`: what happened in a run, from the database and without a daemon."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database, reconnector
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import find_run
from pgflowd.cli.params import MOMENT, RUN, NumberParam
from pgflowd.cli.terminal.history_view import LogWriter
from pgflowd.core.documents.history import EventPage, RunEvent, is_over
from pgflowd.core.text import short_id

NEWEST = 1000  # events that it shows at once


@click.command(cls=Command, prints={"": EventPage, "--follow": RunEvent})
@click.argument("run", metavar="RUN", type=RUN)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.option("--before", type=MOMENT, metavar="TIME", help="Only what happened before.")
@click.option(
    "--limit",
    type=NumberParam(1, 1_000_000),
    default=NEWEST,
    metavar="N",
    help="The newest N, and what has the moment of the oldest of these; by default 1,000.",
)
@pass_app
def log(app: App, run: str, follow: bool, before: datetime | None, limit: int) -> None:
    """Show what happened in a run: its steps and attempts, its waits, and who did what.

    \b
    Example: pgflowd runs log @last
             pgflowd runs log 7f3a9c12 --follow
    """
    if follow and before is not None:
        raise click.UsageError("--follow goes on to the end; it has no --before")
    from pgflowd.cli.log_follower import LogFollower
    from pgflowd.db import history, operations, performing
    from pgflowd.db.query import execute

    with database(app) as conn:
        run_id = find_run(conn, run)
        page = execute(conn, history.event_page(run_id, before, 1 if follow else limit))
        if not page.events:
            performing.run_sync(conn, operations.get(run_id))
        writer = LogWriter(app)
        if follow:
            log = LogFollower(conn, partial(history.timeline, run_id), reconnector(app))
            for event in log.follow(is_over):
                writer.write_event(event)
            return
    if app.json:
        app.print_document(page)
        return
    for event in page.events:
        writer.write_event(event)
    if page.before is not None:
        older = f"`pgflowd runs log {short_id(run_id)} --before {page.before.isoformat()}`"
        app.note(f"these are the newest {len(page.events):,} events; {older} shows older ones")
