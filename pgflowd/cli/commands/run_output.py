"""
`pgflowd runs output`: what handlers have printed and logged, as far as it is kept.

Lines look as those of `runs follow`, which they are followed by with `--follow`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated, TypedDict
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.commands.run_following import entries_of, follower_of
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import find_run
from pgflowd.cli.params import RUN, STEP
from pgflowd.cli.terminal.history_view import TimelineWriter
from pgflowd.core.documents.runs import AttemptOutput, RunWithStates, TimelineEntry
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.lookup import refuse_unknown_step
from pgflowd.core.output_stream import OUTPUT
from pgflowd.core.statuses import Outcome, RunStatus
from pgflowd.core.text import ago, short_id
from pgflowd.core.timeline import output_entry

MAX_ATTEMPTS = 20  # that are shown


class PrintedOutput(TypedDict):
    """With `--follow` the lines as they come, as `runs follow` prints them."""

    run_id: UUID
    attempts: Annotated[
        Sequence[AttemptOutput],
        "at most the newest twenty of which output is kept, in the order of their ends",
    ]


@click.command(cls=Command, prints={"": PrintedOutput, "--follow": TimelineEntry})
@click.argument("run", metavar="RUN", type=RUN)
@click.option("--step", metavar="STEP", type=STEP, help="Only of this step.")
@click.option(
    "--task", type=click.IntRange(0), metavar="N", help="Only of the task with this index."
)
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Only of this attempt.")
@click.option("-f", "--follow", is_flag=True, help="Then print what comes, until the run ends.")
@pass_app
def output(
    app: App, run: str, step: str | None, task: int | None, attempt: int | None, follow: bool
) -> None:
    """Print what the handlers of a run have printed and logged.

    It is kept of attempts that failed, their last lines; with [worker] keep_output = "all" of all
    attempts. Of more than twenty attempts the newest are shown.

    \b
    Example: pgflowd runs output @last
             pgflowd runs output 7f3a9c12 --step fetch --task 3
    """
    from pgflowd.db import operations
    from pgflowd.db.history import kept_output
    from pgflowd.db.performing import run_sync
    from pgflowd.db.query import database_time, execute

    with database(app, listening=follow) as conn:
        run_id = find_run(conn, run)
        details = run_sync(conn, operations.get_with_states(run_id))
        refuse_unknown_step(details, step)
        # before it reads what is kept, so that no line is missed
        follower = follower_of(conn, [run_id], with_output=True) if follow else None
        found = execute(conn, kept_output(run_id, step, task, attempt, MAX_ATTEMPTS))
        if app.json and not follow:
            app.print_document(PrintedOutput(run_id=run_id, attempts=found))
            return
        writer = TimelineWriter(app)
        _print_kept(app, writer, details, found, execute(conn, database_time()))
        if not found and not follow:
            _note_nothing(app, details)
        if follower:
            for entry in entries_of(app, conn, follower):
                if entry.event == OUTPUT and _is_wanted(entry, step, task, attempt):
                    writer.write(entry)
            if follower.ended[run_id].status is not RunStatus.COMPLETED:
                app.exit(ExitCode.NO)


def _print_kept(
    app: App,
    writer: TimelineWriter,
    run: RunWithStates,
    found: Sequence[AttemptOutput],
    now: datetime,
) -> None:
    """The lines of each attempt, and what it is."""
    for each in found:
        if not app.json:
            app.note(_head(each, ago(each.ended_at, now)))
        for entry in _entries(run, each):
            writer.write(entry)


def _head(one: AttemptOutput, when: str) -> str:
    name = f"{one.step_slug}#{one.task_index}, attempt {one.attempt}, {_word(one.outcome)} {when}"
    if one.lines is None:
        return f"{name}: its worker died, and what it had printed with it"
    return f"{name}; earlier lines are not kept" if one.is_cut else name


def _word(outcome: Outcome) -> str:
    return outcome.replace("_", " ")


def _entries(run: RunWithStates, one: AttemptOutput) -> Iterator[TimelineEntry]:
    for line in one.lines or ():
        at = one.started_at + timedelta(seconds=line.since_s)
        document = {
            "step_slug": one.step_slug,
            "task_index": one.task_index,
            "attempt": one.attempt,
            "stream": line.stream,
            "level": line.level,
            "text": line.text,
            "time": at.isoformat(),
        }
        yield output_entry(run, document)


def _is_wanted(
    entry: TimelineEntry, step: str | None, task: int | None, attempt: int | None
) -> bool:
    wanted = ((step, entry.step), (task, entry.task), (attempt, entry.attempt))
    return all(asked is None or asked == found for asked, found in wanted)


def _note_nothing(app: App, run: RunWithStates) -> None:
    app.print(
        app.out.folded(
            "nothing is kept: attempts that fail keep what they print, and those that complete with"
            ' [worker] keep_output = "all"'
        )
    )
    if not run.has_ended:
        app.note(f"`pgflowd runs output {short_id(run.run_id)} --follow` shows what comes")
