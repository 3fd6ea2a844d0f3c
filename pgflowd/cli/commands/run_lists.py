"""
`pgflowd runs list`, `log`, `output` and `tasks`, and `pgflowd signals`: what there is, and what
happened, a page at a time.

They read the database and need no daemon.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypedDict
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.commands.run_following import entries_of, follower_of
from pgflowd.cli.connect import database, reconnector
from pgflowd.cli.groups import Command, Group
from pgflowd.cli.lookup import find_run
from pgflowd.cli.params import (
    FLOW,
    JSON,
    LIMIT_OPTION,
    MOMENT,
    MOMENT_OR_DURATION,
    RUN,
    STEP,
    NumberParam,
    ParamType,
    label_option,
)
from pgflowd.cli.terminal.history_view import LogWriter, TimelineWriter
from pgflowd.cli.terminal.list_view import print_runs, print_signals, print_step_tasks
from pgflowd.core.documents.history import EventPage, RunEvent, is_over
from pgflowd.core.documents.run_tasks import StepTasksPage
from pgflowd.core.documents.runs import (
    AttemptOutput,
    PageKey,
    RunPage,
    RunWithStates,
    TimelineEntry,
)
from pgflowd.core.documents.waits import Signals
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.json import encode
from pgflowd.core.lookup import refuse_unknown_step
from pgflowd.core.output_stream import OUTPUT
from pgflowd.core.redact import one_line
from pgflowd.core.run_filter import RunFilter, checked_key
from pgflowd.core.statuses import OPEN_TASK_STATUSES, Outcome, RunStatus, TaskStatus
from pgflowd.core.text import ago, short_id
from pgflowd.core.timeline import output_entry
from pgflowd.core.wishes import Moment

if TYPE_CHECKING:
    from pgflowd.core.documents.run_tasks import StepTasksPage


STATUSES = tuple(map(str, RunStatus))
MAX_SEEN = 100_000  # a person who asks in a terminal waits for half a second


class PageKeyParam(ParamType):
    """Where a page of a list begins, as the page before it says."""

    name = "key"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> PageKey:
        try:
            return value if isinstance(value, PageKey) else PageKey.read(value)
        except ValueError:
            text = f"'{one_line(value, 60)}' is no key of a page; `next` of the list before is one"
            self.fail(text, param, ctx)


@click.command("list", cls=Command, prints=RunPage)
@click.option("--flow", type=FLOW, metavar="SLUG", help="Only runs of this flow.")
@click.option(
    "--status", "statuses", type=click.Choice(STATUSES), multiple=True, metavar="STATUS",
    help=f"{', '.join(STATUSES)}; may be repeated; of the newest 100,000.",
)  # fmt: skip
@click.option(
    "--since", type=MOMENT_OR_DURATION, metavar="T|DUR",
    help="Only runs started within this time, or since then.",
)  # fmt: skip
@click.option(
    "--until", type=MOMENT_OR_DURATION, metavar="T|DUR",
    help="Only runs started up to then, or so long ago.",
)  # fmt: skip
@click.option(
    "--text", default="", metavar="TEXT",
    help="Only runs with this in their error, title or labels, or these first or last digits.",
)  # fmt: skip
@label_option
@click.option("--key", metavar="TEXT", help="Only the run of --flow that has this key.")
@click.option("--input", type=JSON, metavar="JSON", help="Only runs whose input contains this.")
@click.option(
    "--after", type=PageKeyParam(), metavar="KEY", help="Go on behind `next` of the list before."
)
@LIMIT_OPTION
@pass_app
def list_(
    app: App,
    flow: str | None,
    statuses: Sequence[str],
    since: datetime | float | None,
    until: datetime | float | None,
    text: str,
    labels: Sequence[tuple[str, str]],
    key: str | None,
    input: Any,
    after: PageKey | None,
    limit: int,
) -> None:
    """List the newest runs; with -v whole ids and errors, and the runs that undo others.

    \b
    Example: pgflowd runs list --status failed --since 1d
             pgflowd runs list --status scheduled --label customer=42
             pgflowd runs list --text TimeoutError --until 2d
             pgflowd runs list --flow orders --input '{"customer": 42}'
    """
    from pgflowd.db.performing import run_sync
    from pgflowd.db.query import database_time, execute
    from pgflowd.db.run_search import count_runs, find_page

    wanted = RunFilter(
        flow, statuses, _ago(since), _ago(until), dict(labels), text, with_undos=app.verbose,
        input=None if input is None else encode(input), key=checked_key(flow, key),
    )  # fmt: skip
    with database(app) as conn:
        page = run_sync(conn, find_page(wanted, limit, after, MAX_SEEN))
        if app.json:
            page = replace(page, count=execute(conn, count_runs(wanted)))
        now = execute(conn, database_time())
    if app.json:
        app.print_document(page)
    elif not (page.runs or after) and wanted.is_empty:
        app.note("there are no runs yet; `pgflowd runs start FLOW` starts one")
    else:
        print_runs(app, page.runs, now)
        _note_next_runs(app, page, now, is_full=len(page.runs) == limit, is_later=after is not None)


def _ago(time: datetime | float | None) -> Moment:
    if isinstance(time, datetime):
        return Moment(time)
    return Moment(in_s=None if time is None else -time)


def _note_next_runs(
    app: App, page: RunPage, now: datetime, *, is_full: bool, is_later: bool
) -> None:
    """How to go on, for who pages already, or where it has stopped before the list was full."""
    if page.next is None or (is_full and not is_later):
        return
    looked = f"it has looked at {page.seen:,} runs, back to {ago(page.next.at, now)}"
    app.note(f"{looked}; the same with `--after {page.next.text}` goes on")


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


TASK_STATUSES = tuple(
    map(str, (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.SKIPPED, *OPEN_TASK_STATUSES))
)


@click.command(cls=Command, prints=StepTasksPage)
@click.argument("run", metavar="RUN", type=RUN)
@click.argument("step", metavar="STEP", type=STEP)
@click.option(
    "--status", "statuses", type=click.Choice(TASK_STATUSES), multiple=True, metavar="STATUS",
    help=f"{', '.join(TASK_STATUSES)}; may be repeated; it looks at 20,000 tasks.",
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
        _note_next_tasks(app, page, statuses)


def _note_next_tasks(app: App, page: StepTasksPage, statuses: Sequence[str]) -> None:
    """How to see the next page. None is promised where only some statuses are wanted."""
    chosen = "".join(f" --status {status}" for status in statuses)
    command = f"pgflowd runs tasks {short_id(page.run_id)} {page.step}{chosen} --after {page.after}"
    app.note(f"it has looked at the tasks up to #{page.after}; `{command}` goes on")


@click.group(cls=Group)
def signals() -> None:
    """List the signals that were sent to runs.

    `runs signal` sends one.

    \b
    Example: pgflowd signals list --open
    """


@signals.command("list", prints=Signals)
@click.option("--run", type=RUN, metavar="RUN", help="Only signals of this run.")
@click.option("--open", "only_open", is_flag=True, help="Only those that no task has got.")
@LIMIT_OPTION
@pass_app
def list_sent(app: App, run: str | None, only_open: bool, limit: int) -> None:
    """List the newest signals.

    \b
    Example: pgflowd signals list --run @last
    """
    from pgflowd.db.query import database_time, execute
    from pgflowd.db.waits import list_signals

    with database(app) as conn:
        run_id = None if run is None else find_run(conn, run)
        found = execute(conn, list_signals(run_id, only_open, limit))
        now = execute(conn, database_time())
    if app.json:
        app.print_document(Signals(found))
    elif found:
        print_signals(app, found, now)
    else:
        app.note("there are no such signals" if run or only_open else "there are no signals yet")
