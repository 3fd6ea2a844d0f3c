"""
`pgflowd runs undo`: take back what runs did that have ended.

It needs the database; the daemon that serves the flow does the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.commands.run_choice import Chosen, Done, change_chosen, choosing
from pgflowd.cli.commands.run_following import follower_of, print_events
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import find_runs
from pgflowd.cli.params import REASON_OPTION
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import short_id

if TYPE_CHECKING:
    import psycopg


@click.command(cls=Command)
@choosing(RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED,
          RunStatus.UNDO_FAILED)  # fmt: skip
@REASON_OPTION
@click.option("--again", is_flag=True, help="Undo what an undo that failed has left.")
@click.option("--follow", "then_follow", is_flag=True, help="Then print what is undone.")
@pass_app
def undo(app: App, /, reason: str | None, again: bool, then_follow: bool, **chosen: Any) -> None:
    """Undo what the steps of runs did, in reverse order, by their undo handlers.

    The runs must have ended, completed ones too; `runs cancel --undo` ends one first. Filters
    choose many. With --follow the exit code is 0 if all of them are undone, else 1.

    \b
    Example: pgflowd runs undo 7f3a9c12 --reason "customer withdrew" --follow
             pgflowd runs undo 7f3a9c12 --again
             pgflowd runs undo --flow book_trip --status failed --since 1d
    """
    from pgflowd.db import operations

    def change(conn: psycopg.Connection[Any], run_id: UUID) -> Done:
        asked = operations.run_sync(conn, operations.undo(run_id, reason, None, again))
        if asked.status is RunStatus.UNDO_FAILED:
            word = short_id(run_id)
            app.note(f"`pgflowd runs undo {word} --again` undoes what is left")
        return f"run {run_id} {_became(asked.status)}", asked.to_json()

    which = Chosen(**chosen)
    if not then_follow:
        status = RunStatus.UNDO_FAILED if again else RunStatus.FAILED
        change_chosen(app, "undo", which, [status], change)
        return
    if which.has_filters:
        raise click.UsageError("--follow needs runs that are named")
    with database(app, listening=True) as conn:
        run_ids = find_runs(conn, which.words)
        follower = follower_of(app, conn, run_ids, with_output=True)
        follower.skip_past()
        for run_id in run_ids:
            line, _ = change(conn, run_id)
            app.note(line)
        print_events(app, follower, None, good=RunStatus.UNDONE)


def _became(status: RunStatus) -> str:
    """What a run is that was to be undone."""
    if status is RunStatus.UNDOING:
        return "is being undone"
    return f"is {status.replace('_', ' ')} already"
