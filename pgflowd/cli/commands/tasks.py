"""`pgflowd tasks`: list open tasks, end the wait of one, and do one by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.commands.task_people import claim, complete, extend, fail, release
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Group
from pgflowd.cli.idle_flows import note_paused
from pgflowd.cli.lookup import find_run, find_task
from pgflowd.cli.params import FLOW, LIMIT_OPTION, NEEDS, RUN, WAITING_TASK
from pgflowd.cli.terminal.task_view import print_tasks
from pgflowd.core.statuses import OPEN_TASK_STATUSES
from pgflowd.core.text import task_name
from pgflowd.errors import NotFound, NotOpen

if TYPE_CHECKING:
    import psycopg

    from pgflowd.core.documents.flows import TaskKey

STATUSES = tuple(map(str, OPEN_TASK_STATUSES))
_WAITING = "`pgflowd tasks list --status waiting` lists the tasks that wait"


@click.group(cls=Group)
def tasks() -> None:
    """List open tasks, end the wait of one, and do one by hand.

    TASK is RUN/STEP#INDEX.

    \b
    Example: pgflowd tasks list --status waiting
    """


@tasks.command("list")
@click.option(
    "--status", "statuses", type=click.Choice(STATUSES), multiple=True, metavar="STATUS",
    help=f"{', '.join(STATUSES)}; may be repeated.",
)  # fmt: skip
@click.option("--flow", type=FLOW, metavar="SLUG", help="Only tasks of this flow.")
@click.option("--run", type=RUN, metavar="RUN", help="Only tasks of this run.")
@click.option(
    "--needs", type=NEEDS, metavar="A,B", default=(),
    help="Only tasks that wait for a worker with these.",
)  # fmt: skip
@LIMIT_OPTION
@pass_app
def list_(
    app: App,
    statuses: Sequence[str],
    flow: str | None,
    run: str | None,
    needs: Sequence[str],
    limit: int,
) -> None:
    """List open tasks, the oldest first, and what they wait for; with -v whole ids.

    \b
    Example: pgflowd tasks list --status waiting
    """
    from pgflowd.db.operations import run_sync
    from pgflowd.db.query import database_time, execute
    from pgflowd.db.run_search import find_open_tasks

    if flow and run:
        raise click.UsageError("--flow and --run exclude each other: a run has one flow")
    with database(app) as conn:
        run_id = None if run is None else find_run(conn, run)
        found = run_sync(conn, find_open_tasks(run_id, flow, statuses, needs, limit))
        now = execute(conn, database_time())
        for slug in dict.fromkeys(task.flow_slug for task in found):
            note_paused(app, conn, slug)
    if app.json:
        app.print_document(tasks=[task.to_json() for task in found])
    elif found:
        print_tasks(app, found, now)
    else:
        app.note(
            "there are no such tasks" if statuses or flow or run or needs else "no task is open"
        )


@tasks.command()
@click.argument("task", metavar="TASK", type=WAITING_TASK)
@click.option("--reason", metavar="TEXT", help="Why.")
@pass_app
def wake(app: App, task: str, reason: str | None) -> None:
    """End the wait of a task now: its sleep is over, or its signal did not come.

    \b
    Example: pgflowd tasks wake 7f3a9c12/remind#0 --reason "the customer called"
    """
    with database(app) as conn:
        key = find_task(conn, task)
        result = _wake(conn, key, reason)
    app.print_result(f"{task_name(*key)}  {result}", **key.to_json(), result=result)


for command in (claim, extend, complete, fail, release):
    tasks.add_command(command)


def _wake(conn: psycopg.Connection[Any], key: TaskKey, reason: str | None) -> str:
    from pgflowd.db.query import execute
    from pgflowd.db.waits import wake

    try:
        return execute(conn, wake(key, None, reason))
    except (NotFound, NotOpen) as error:
        error.next = _WAITING
        raise
