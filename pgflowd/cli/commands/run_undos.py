"""
`pgflowd runs undo`: take back what runs did that have ended.

It needs the database; the daemon that serves the flow does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.commands.run_following import follower_of, print_events
from pgflowd.cli.commands.run_pauses import runs_argument
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import find_runs
from pgflowd.cli.params import REASON_OPTION
from pgflowd.cli.problems import for_each
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import short_id


@click.command(cls=Command)
@runs_argument
@REASON_OPTION
@click.option("--again", is_flag=True, help="Undo what an undo that failed has left.")
@click.option("--follow", "then_follow", is_flag=True, help="Then print what is undone.")
@pass_app
def undo(app: App, run: Sequence[str], reason: str | None, again: bool, then_follow: bool) -> None:
    """Undo what the steps of runs did, in reverse order, by their undo handlers.

    The runs must have ended, completed ones too; `runs cancel --undo` ends one first. With
    --follow the exit code is 0 if all of them are undone, else 1.

    \b
    Example: pgflowd runs undo 7f3a9c12 --reason "customer withdrew" --follow
             pgflowd runs undo 7f3a9c12 --again
    """
    from pgflowd.db import operations

    with database(app, listening=then_follow) as conn:
        run_ids = find_runs(conn, run)

        def change(run_id: UUID) -> tuple[str, dict[str, Any]]:
            operation = operations.undo(run_id, reason, None, again)
            asked = operations.run_sync(conn, operation)
            if asked.status is RunStatus.UNDO_FAILED:
                word = short_id(run_id)
                app.note(f"`pgflowd runs undo {word} --again` undoes what is left")
            return f"run {run_id} {_became(asked.status)}", asked.to_json()

        if not then_follow:
            for_each(app, "runs", run_ids, change)
            return
        follower = follower_of(app, conn, run_ids, with_output=True)
        follower.skip_past()
        for run_id in run_ids:
            line, _ = change(run_id)
            app.note(line)
        print_events(app, follower, None, good=RunStatus.UNDONE)


def _became(status: RunStatus) -> str:
    """What a run is that was to be undone."""
    if status is RunStatus.UNDOING:
        return "is being undone"
    return f"is {status.replace('_', ' ')} already"
