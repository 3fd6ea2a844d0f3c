"""`pgflowd log`: what people and clients did."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database, reconnector
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import find_run
from pgflowd.cli.params import DURATION, LIMIT_OPTION, RUN
from pgflowd.cli.terminal.history_view import LogWriter
from pgflowd.core.documents.history import Actions, PersonAction

if TYPE_CHECKING:
    import psycopg

    from pgflowd.db.query import Query

MAX_FOLLOWED = 100_000  # actions that a look of a follower reads
FOLLOWED_S = 3600.0  # a follower begins with those of so long ago


@click.command(cls=Command, prints={"": Actions, "--follow": PersonAction})
@click.option("--actions", is_flag=True, help="What people did; there is no other log here.")
@click.option("--run", type=RUN, metavar="RUN", help="Only what was done to this run.")
@click.option("--since", type=DURATION, metavar="DUR", help="Only within this time.")
@click.option("--actor", metavar="NAME", help="Only by NAME; of the newest 100,000.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is done from now on.")
@LIMIT_OPTION
@pass_app
def log(
    app: App,
    actions: bool,
    run: str | None,
    since: float | None,
    actor: str | None,
    follow: bool,
    limit: int,
) -> None:
    """Show what people and clients did: who, when, why. The newest come last.

    Each command and call that changed something is an action. `pgflowd runs log RUN` shows
    everything that happened in a run.

    \b
    Example: pgflowd log --since 1d
             pgflowd log --run 7f3a9c12
             pgflowd log --actor jane -f
    """
    from pgflowd.db.history import list_actions
    from pgflowd.db.query import database_time, execute

    with database(app) as conn:
        run_id = None if run is None else find_run(conn, run)
        now = execute(conn, database_time())
        if follow:
            ago = timedelta(seconds=FOLLOWED_S if since is None else since)
            _follow(app, conn, run_id, now - ago, actor, limit)
        first = None if since is None else now - timedelta(seconds=since)
        found = execute(conn, list_actions(run_id, first, actor, limit))
    if app.json:
        app.print_document(Actions(found))
        return
    writer = LogWriter(app)
    for action in reversed(found):
        writer.write_action(action)
    if not found:
        some = run or since or actor
        app.note("there are no such actions" if some else "there are no actions yet")


def _follow(
    app: App,
    conn: psycopg.Connection[Any],
    run_id: UUID | None,
    first: datetime,
    actor: str | None,
    limit: int,
) -> NoReturn:
    """Print the last actions since `first`, and then each new one."""
    from pgflowd.cli.log_follower import LogFollower
    from pgflowd.db.history import list_actions

    def read(after: datetime | None) -> Query[list[PersonAction]]:
        return list_actions(run_id, max(after or first, first), actor, MAX_FOLLOWED)

    log, writer = LogFollower(conn, read, reconnector(app)), LogWriter(app)
    for action in chain(log.seen()[-limit:], log.follow()):
        writer.write_action(action)
    raise AssertionError("nobody ends it")
