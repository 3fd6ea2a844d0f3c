"""
`pgflowd runs cancel`, `retry`, `pause` and `resume`: of runs that are named, or of many.

They need the database and no daemon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.commands.run_choice import OPEN, Change, Chosen, Done, change_chosen, choosing
from pgflowd.cli.commands.run_following import follower_of, print_events
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import find_runs
from pgflowd.cli.params import REASON_OPTION
from pgflowd.core.statuses import RunStatus
from pgflowd.errors import NotRetryable

if TYPE_CHECKING:
    import psycopg

    from pgflowd.core.documents.runs import Run
    from pgflowd.db.operations import Operation


@click.command(cls=Command)
@choosing(*OPEN)
@REASON_OPTION
@click.option("--undo", "then_undo", is_flag=True, help="Then undo them, whatever their flow says.")
@pass_app
def cancel(app: App, /, reason: str | None, then_undo: bool, **chosen: Any) -> None:
    """Cancel runs, and stop their running tasks. Filters choose many.

    \b
    Example: pgflowd runs cancel 7f3a9c12 --reason "wrong customer"
             pgflowd runs cancel 7f3a9c12 --undo
             pgflowd runs cancel --flow import_orders --since 1h
    """
    from pgflowd.db import operations

    change = _changing(
        "cancelled", lambda run_id: operations.cancel(run_id, reason, None, then_undo)
    )
    change_chosen(app, "cancel", Chosen(**chosen), OPEN, change)


@click.command(cls=Command)
@choosing(RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED)
@click.option("--even-if-cancelled", is_flag=True, help="Also retry cancelled runs.")
@REASON_OPTION
@click.option("--follow", "then_follow", is_flag=True, help="Then print their events.")
@pass_app
def retry(
    app: App, /, even_if_cancelled: bool, reason: str | None, then_follow: bool, **chosen: Any
) -> None:
    """Retry the failed steps of runs; completed work stays. Filters choose many.

    \b
    Example: pgflowd runs retry @last --follow
             pgflowd runs retry --flow send_email --since 1d
    """
    from pgflowd.db import operations

    def retry_one(run_id: UUID) -> Any:
        try:
            return (yield from operations.retry(run_id, None, even_if_cancelled, reason))
        except NotRetryable as error:
            if "has never begun" in error.text:
                raise
            if RunStatus.CANCELLED in error.text:
                error.next = "--even-if-cancelled retries it"
            else:
                error.next = "only a failed run can be retried; see `pgflowd runs show`"
            raise

    which = Chosen(**chosen)
    if not then_follow:
        change = _changing("retried", retry_one)
        change_chosen(app, "retry", which, [RunStatus.FAILED], change)
        return
    if which.has_filters:
        raise click.UsageError("--follow needs runs that are named")
    with database(app, listening=True) as conn:
        follower = follower_of(app, conn, find_runs(conn, which.words), with_output=True)
        follower.skip_past()
        for run_id in follower.open:
            operations.run_sync(conn, retry_one(run_id))
            app.note(f"run {run_id} retried")
        print_events(app, follower, None)


@click.command(cls=Command)
@choosing(RunStatus.STARTED, RunStatus.WAITING, RunStatus.QUARANTINED)
@REASON_OPTION
@pass_app
def pause(app: App, /, reason: str | None, **chosen: Any) -> None:
    """Pause runs: none of their tasks begins, and their timers stand still. Filters choose many.

    Running tasks end normally. A run expires all the same.

    \b
    Example: pgflowd runs pause 7f3a9c12 --reason "the supplier is down"
    """
    from pgflowd.db import operations

    statuses = [RunStatus.STARTED, RunStatus.WAITING, RunStatus.QUARANTINED]
    change = _changing("paused", lambda run_id: operations.pause(run_id, reason, None))
    change_chosen(app, "pause", Chosen(**chosen), statuses, change)


@click.command(cls=Command)
@choosing(RunStatus.PAUSED)
@REASON_OPTION
@pass_app
def resume(app: App, /, reason: str | None, **chosen: Any) -> None:
    """Let paused runs go on. Filters choose many.

    \b
    Example: pgflowd runs resume 7f3a9c12
    """
    from pgflowd.db import operations

    change = _changing("resumed", lambda run_id: operations.resume(run_id, reason, None))
    change_chosen(app, "resume", Chosen(**chosen), [RunStatus.PAUSED], change)


def _changing(done: str, operation: Callable[[UUID], Operation[Run]]) -> Change:
    """Perform the operation on a run, and say what was done."""
    from pgflowd.db import operations

    def change(conn: psycopg.Connection[Any], run_id: UUID) -> Done:
        run = operations.run_sync(conn, operation(run_id))
        ended = done == "resumed" and run.has_ended
        return f"run {run_id} {f'is {run.status} already' if ended else done}", run.to_json()

    return change
