"""`pgflowd runs tasks`: the tasks of one step of a run, of any status, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import find_run
from pgflowd.cli.params import LIMIT_OPTION, RUN, STEP
from pgflowd.cli.terminal.task_view import print_step_tasks
from pgflowd.core.documents.run_tasks import StepTasksPage
from pgflowd.core.statuses import OPEN_TASK_STATUSES, TaskStatus
from pgflowd.core.text import short_id

if TYPE_CHECKING:
    from pgflowd.core.documents.run_tasks import StepTasksPage

STATUSES = tuple(
    map(str, (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.SKIPPED, *OPEN_TASK_STATUSES))
)


@click.command(cls=Command, prints=StepTasksPage)
@click.argument("run", metavar="RUN", type=RUN)
@click.argument("step", metavar="STEP", type=STEP)
@click.option(
    "--status", "statuses", type=click.Choice(STATUSES), multiple=True, metavar="STATUS",
    help=f"{', '.join(STATUSES)}; may be repeated; it looks at 20,000 tasks.",
)  # fmt: skip
@click.option(
    "--after", type=click.IntRange(-1), default=-1, metavar="N", help="Only tasks after this index."
)
@LIMIT_OPTION
@pass_app
def tasks(app: App, run: str, step: str, statuses: Sequence[str], after: int, limit: int) -> None:
    """List the tasks of a step of a run, in their order, with the last attempt of each.

    \b
    Example: pgflowd runs tasks @last fetch --status failed
             pgflowd runs tasks 7f3a9c12 fetch --after 5000
    """
    from pgflowd.db.performing import run_sync
    from pgflowd.db.query import database_time, execute
    from pgflowd.db.run_details import find_tasks, step_strip

    with database(app) as conn:
        run_id = find_run(conn, run)
        page = run_sync(conn, find_tasks(run_id, step, statuses, after, limit))
        if app.json:
            page = replace(page, strip=execute(conn, step_strip(run_id, step)))
        now = execute(conn, database_time())
    if app.json:
        app.print_document(page)
    elif page.tasks:
        print_step_tasks(app, page, now)
    else:
        app.note("it has no such tasks" if statuses or after >= 0 else "it has no tasks yet")
    if page.after is not None and not app.json:
        _note_next(app, page, statuses)


def _note_next(app: App, page: StepTasksPage, statuses: Sequence[str]) -> None:
    """How to see the next page. None is promised where only some statuses are wanted."""
    chosen = "".join(f" --status {status}" for status in statuses)
    command = f"pgflowd runs tasks {short_id(page.run_id)} {page.step}{chosen} --after {page.after}"
    app.note(f"it has looked at the tasks up to #{page.after}; `{command}` goes on")
