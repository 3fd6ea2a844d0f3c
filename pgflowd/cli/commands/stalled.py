"""
`pgflowd stalled`: list, requeue and fail stalled tasks.

The daemon's sweeper recovers stalled tasks by itself. These commands are for tasks that stall
again and again, and for times without a daemon. They never touch a running task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Group
from pgflowd.cli.lookup import find_task
from pgflowd.cli.params import REASON_OPTION, TASK
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.text import ago, task_name

if TYPE_CHECKING:
    import psycopg

    from pgflowd.core.documents.flows import StalledTask, TaskKey

tasks_argument = click.argument("task", metavar="[TASK]...", type=TASK, nargs=-1)
all_option = click.option("--all", "all_", is_flag=True, help="Every stalled task.")


@click.group(cls=Group)
def stalled() -> None:
    """List, requeue and fail stalled tasks, which no worker works on or will meet.

    They are started, and their worker has vanished; or queued, and their message is gone.
    TASK is RUN/STEP#INDEX.

    \b
    Example: pgflowd stalled requeue --all
    """


@stalled.command("list")
@pass_app
def list_(app: App) -> None:
    """List the stalled tasks, oldest first.

    \b
    Example: pgflowd stalled list
    """
    from pgflowd.db.query import database_time, execute

    with database(app) as conn:
        found, now = _found(app, conn), execute(conn, database_time())
    if app.json:
        app.print_document(tasks=[task.to_json() for task in found])
        return
    if not found:
        app.note("no task is stalled")
        return
    rows = [
        (
            task_name(*task.key),
            task.flow_slug,
            ago(task.stalled_at, now),
            str(task.attempt),
            str(task.times),
            task.reason,
        )
        for task in found
    ]
    titles = ("TASK", "FLOW", "STALLED", "ATTEMPT", "TIMES", "WHY")
    losing = ("ATTEMPT", "TIMES", "FLOW", "WHY", "STALLED")
    app.print_table(titles, rows, right={"ATTEMPT", "TIMES"}, losing=losing)


@stalled.command()
@tasks_argument
@all_option
@REASON_OPTION
@pass_app
def requeue(app: App, task: Sequence[str], all_: bool, reason: str | None) -> None:
    """Put stalled tasks back into their queues; this costs no attempt.

    \b
    Example: pgflowd stalled requeue 7f3a9c12/summary#0
    """
    from pgflowd.db import stalled

    _change_each(app, task, all_, partial(stalled.requeue_task, reason=reason), "requeued")


@stalled.command()
@tasks_argument
@all_option
@click.option("--reason", metavar="TEXT", help="Why; it is added to the error.")
@pass_app
def fail(app: App, task: Sequence[str], all_: bool, reason: str | None) -> None:
    """Fail stalled tasks without a retry; when_exhausted of the step decides about the run.

    \b
    Example: pgflowd stalled fail 7f3a9c12/summary#0 --reason "the file is gone"
    """
    from pgflowd.db import stalled

    _change_each(app, task, all_, partial(stalled.give_up_task, reason=reason), "failed")


def _change_each(
    app: App, words: Sequence[str], all_: bool, change: Callable[..., bool], done: str
) -> None:
    """Change each task that is stalled; leave and report those that are not."""
    if bool(words) == all_:
        raise click.UsageError("name tasks, or give --all")
    changed: list[TaskKey] = []
    left: list[TaskKey] = []
    threshold_s = app.settings.recovery.stale_threshold_s
    with database(app) as conn:
        if all_:
            keys = [task.key for task in _found(app, conn)]
        else:
            keys = list(dict.fromkeys(find_task(conn, word) for word in words))
        for key in keys:
            (changed if change(conn, *key, threshold_s) else left).append(key)
    if app.json:
        documents = [[key.to_json() for key in keys] for keys in (changed, left)]
        app.print_document(**{done: documents[0], "left": documents[1]})
    for key in changed if not app.json else []:
        app.print(f"{task_name(*key)}  {done}")
    for key in left:
        app.note(f"{task_name(*key)} is not stalled; it was left as it is")
    if not keys:
        app.note("no task is stalled")
    if left and not all_:
        app.exit(ExitCode.REFUSED)


def _found(app: App, conn: psycopg.Connection[Any]) -> list[StalledTask]:
    from pgflowd.db.query import execute
    from pgflowd.db.stalled import stalled_tasks

    return execute(conn, stalled_tasks(app.settings.recovery.stale_threshold_s))
