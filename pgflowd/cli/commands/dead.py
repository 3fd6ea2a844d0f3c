"""`pgflowd dead`: the tasks that have failed for good, and their runs with them."""

from __future__ import annotations

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Group
from pgflowd.cli.lookup import flow_slugs
from pgflowd.cli.params import DURATION, FLOW, LIMIT_OPTION
from pgflowd.cli.terminal.history_view import print_dead
from pgflowd.core.lookup import unknown_flow


@click.group(cls=Group)
def dead() -> None:
    """List dead letters: tasks that have failed for good, and their runs with them.

    `runs retry` lets their runs go on.

    \b
    Example: pgflowd dead list --flow send_email
    """


@dead.command("list")
@click.option("--flow", type=FLOW, metavar="SLUG", help="Only tasks of this flow.")
@click.option("--since", type=DURATION, metavar="DUR", help="Of runs started within this time.")
@LIMIT_OPTION
@pass_app
def list_(app: App, flow: str | None, since: float | None, limit: int) -> None:
    """List the tasks that failed for good, those of the newest runs first.

    \b
    Example: pgflowd dead list --flow send_email --since 1d
    """
    from pgflowd.db.history import dead_letters
    from pgflowd.db.query import database_time, execute

    with database(app) as conn:
        found = execute(conn, dead_letters(flow, since, limit))
        if flow and not found and flow not in (known := flow_slugs(conn)):
            raise unknown_flow(flow, known)
        now = execute(conn, database_time())
    if app.json:
        app.print_document(tasks=[dead.to_json() for dead in found])
    elif found:
        print_dead(app, found, now)
    else:
        app.note("there are no such tasks" if flow or since else "no task has failed for good")
