"""
`pgflowd runs`: start, list, show, follow and wait for runs; and `pgflowd signals`.

These commands need the database and no daemon. `cli.terminal.run_view` prints runs;
`db.following` follows them, and `cli.terminal.history_view` prints what it yields.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pgflowd import db
from pgflowd.cli import params
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.commands.log import (
    entries_of,
    exit_by_status,
    follower_of,
    output,
    print_events,
    run_log,
)
from pgflowd.cli.commands.run_verbs import MADE, approve, prune, reject, reschedule, signal
from pgflowd.cli.database import (
    database,
    execute,
    find_run,
    find_runs,
    note_idle,
    note_paused,
    perform,
    time_of,
    unknown_flow,
)
from pgflowd.cli.groups import Group
from pgflowd.cli.terminal.list_view import print_runs, print_step_tasks
from pgflowd.cli.terminal.run_view import print_ended, print_run
from pgflowd.cli.terminal.texts import print_list
from pgflowd.core.documents.run_tasks import Signals, StepTasksPage
from pgflowd.core.documents.runs import PageKey, Run, RunDetails, RunPage, Runs, TimelineEntry
from pgflowd.core.json import encode
from pgflowd.core.redact import one_line
from pgflowd.core.run_filter import RunFilter, checked_key
from pgflowd.core.statuses import OPEN_TASK_STATUSES, RunStatus, TaskStatus
from pgflowd.core.text import ago, short_id
from pgflowd.core.timeline import WAITING
from pgflowd.core.wishes import AFTER_MODES, CONFLICTS, Moment
from pgflowd.errors import UnknownFlow

if TYPE_CHECKING:
    import psycopg

    from pgflowd.core.wishes import Wishes

MAX_SEEN = 100_000  # a person who asks in a terminal waits for half a second
TASK_STATUSES = (
    TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.SKIPPED, *OPEN_TASK_STATUSES
)  # fmt: skip

timeout_option = click.option(
    "--timeout", type=params.duration_s, metavar="DUR",
    help="Stop waiting after this time; the runs go on.",
)  # fmt: skip


@click.group(cls=Group)
def runs() -> None:
    """Start, show, follow, signal and change runs.

    RUN is an id, its last digits, or @last.

    \b
    Example: pgflowd runs start analyze_website '{"url": "https://example.com"}' --follow
    """


# what a start may ask for: times, runs before it, labels, a singleton key
wish_options = params.options(
    params.time_options,
    click.option("--after", type=params.RUN, metavar="RUN", multiple=True,
                 help="Begin it when RUN has ended; may be repeated."),
    click.option("--after-key", "after_keys", metavar="KEY", multiple=True,
                 help="Likewise, the run of FLOW that was started with this key."),
    click.option("--after-mode", type=click.Choice(AFTER_MODES), metavar="MODE",
                 help="completed, the default: cancel it if one of them does not complete;"
                      " ended: begin it all the same."),
    params.label_option,
    click.option("--singleton", metavar="KEY",
                 help="Only one run at a time has this key; none with ''."),
    click.option("--on-conflict", type=click.Choice(CONFLICTS), metavar="WORD",
                 help=f"While another run has the key: {', '.join(CONFLICTS)}."),
)  # fmt: skip


def wishes_of(conn: psycopg.Connection[Any], given: dict[str, Any]) -> Wishes:
    """The wishes that the options name."""
    given["labels"] = dict(given["labels"])
    given["after"] = find_runs(conn, given["after"])
    return {name: value for name, value in given.items() if value not in (None, (), [], {})}  # type: ignore[return-value]


@runs.command(prints={"": Run, "--wait": Runs, "--follow": TimelineEntry})
@params.flow_argument
@click.argument("input", metavar="[INPUT|-|@FILE]", type=params.json_value, default="{}")
@click.option("--follow", is_flag=True, help="Print its events until it ends.")
@click.option("--wait", is_flag=True, help="Wait until it ends, then print its output.")
@timeout_option
@click.option("--run-id", type=click.UUID, metavar="UUID", help="Its id; by default a new one.")
@click.option("--key", metavar="TEXT", help="Whoever starts FLOW with the same key gets this run.")
@wish_options
@pass_app
def start(
    app: App,
    /,
    flow: str,
    input: Any,
    follow: bool,
    wait: bool,
    timeout: float | None,
    run_id: UUID | None,
    key: str | None,
    **wishes: Any,
) -> None:
    """Start a run of FLOW and print its id.

    INPUT is JSON, by default {}; - reads it from standard input, @FILE from a file.

    \b
    Example: pgflowd runs start analyze_website '{"url": "https://example.com"}' --follow
             pgflowd runs start import_orders @orders.json --wait --timeout 5m
             pgflowd runs start remind '{"customer": 42}' --delay 2h --label customer=42
    """
    if follow and wait:
        raise click.UsageError("--follow and --wait exclude each other")
    if timeout is not None and not (follow or wait):
        raise click.UsageError("--timeout needs --follow or --wait")
    run_id = run_id if run_id or key is not None else db.operations.new_run_id()
    with database(app, listening=follow or wait) as conn:
        db.flows.check_input(conn, flow, input)
        operation = db.operations.start(flow, input, run_id, key, wishes_of(conn, wishes))
        # it listens before the start, so it misses no line of output; an id of a key comes later
        follower = follower_of(conn, [run_id], with_output=True) if follow and run_id else None
        try:
            started = perform(conn, operation)
        except UnknownFlow as error:
            raise unknown_flow(conn, flow) from error
        if follow or wait:
            note_idle(app, conn, flow)
        if follow:
            follower = follower or follower_of(conn, [started.run_id], with_output=True)
            print_events(app, conn, follower, timeout)
        elif wait:
            app.note(f"run {started.run_id} {started.status}")
            _wait_for(app, conn, [started.run_id], timeout)
        else:
            app.print_result(str(started.run_id), started)


@runs.command(prints={"": RunDetails, "--input": None, "--output": None})
@params.run_argument
@click.option("--input", "with_input", is_flag=True, help="Print only its whole input.")
@click.option("--output", "with_output", is_flag=True, help="Print only its whole output.")
@click.option("--attempts", "with_attempts", is_flag=True, help="List its attempts.")
@click.option("--checkpoints", "with_checkpoints", is_flag=True, help="List what its tasks saved.")
@click.option("--tree", "with_family", is_flag=True, help="Show its children, and who started it.")
@pass_app
def show(app: App, /, run: str, with_input: bool, with_output: bool, **parts: bool) -> None:
    """Show a run: its graph, with the status of each step, and what it waits for.

    \b
    Example: pgflowd runs show @last
             pgflowd runs show 7f3a9c12 --output
             pgflowd runs show 7f3a9c12 --tree
    """
    if with_input and with_output:
        raise click.UsageError("--input and --output exclude each other")
    trace_url = app.settings.telemetry.trace_url
    with database(app) as conn:
        reading = db.run_details.read_details(find_run(conn, run), trace_url=trace_url, **parts)
        details = perform(conn, reading)
        if not (details.run.has_ended or with_input or with_output):
            note_paused(app, conn, details.run.flow_slug)
    if with_input or with_output:  # whole, for people and programs alike
        value = details.run.input if with_input else details.run.output
        app.print(json.dumps(value, indent=2, ensure_ascii=not app.out.unicode))
    else:
        app.print_result(lambda: print_run(app, details), details)


@runs.command(prints=TimelineEntry)
@params.runs_argument
@timeout_option
@pass_app
def follow(app: App, run: Sequence[str], timeout: float | None) -> None:
    """Print the events of runs, from their start to their end.

    Lines that handlers print and log are shown from now on, if their daemon receives
    notifications. The exit code is 0 if all runs completed, else 1.

    \b
    Example: pgflowd runs follow @last
    """
    with database(app, listening=True) as conn:
        follower = follower_of(conn, find_runs(conn, run), with_output=True)
        print_events(app, conn, follower, timeout)


@runs.command(prints=Runs)
@params.runs_argument
@timeout_option
@pass_app
def wait(app: App, run: Sequence[str], timeout: float | None) -> None:
    """Wait until runs end, then print their outputs.

    The exit code is 0 if all runs completed, 1 if not, 5 if --timeout passed first.

    \b
    Example: pgflowd runs wait @last --timeout 30s
    """
    with database(app, listening=True) as conn:
        _wait_for(app, conn, find_runs(conn, run), timeout)


def _wait_for(
    app: App, conn: psycopg.Connection[Any], run_ids: Sequence[UUID], timeout_s: float | None
) -> None:
    """Wait until runs end, then print their outputs."""
    follower = follower_of(conn, run_ids)
    for entry in entries_of(app, conn, follower, timeout_s):
        if entry.event == WAITING:
            end = f"; `{entry.ends_by}` ends it" if entry.ends_by else ""
            app.note(one_line(f"run {short_id(entry.run_id)}, {entry.step}: {entry.text}{end}"))
    ended = [follower.ended[run_id] for run_id in run_ids]
    app.print_result(lambda: print_ended(app, ended), Runs(runs=ended))
    for run in ended:
        if run.status_before_undo is RunStatus.FAILED:
            app.note(f"`pgflowd runs show {short_id(run.run_id)}` shows where it failed")
    exit_by_status(app, ended)


def page_key(word: str) -> PageKey:
    """Where a page of a list begins, as the page before it says."""
    try:
        return PageKey.read(word)
    except ValueError:
        shown = one_line(word, 60)
        text = f"'{shown}' is no key of a page; `next` of the list before is one"
        raise click.BadParameter(text) from None


@runs.command("list", prints=RunPage)
@click.option("--flow", type=params.FLOW, metavar="SLUG", help="Only runs of this flow.")
@params.status_option(RunStatus, "; of the newest 100,000")
@click.option(
    "--since", type=params.moment_or_duration, metavar="T|DUR",
    help="Only runs started within this time, or since then.",
)  # fmt: skip
@click.option(
    "--until", type=params.moment_or_duration, metavar="T|DUR",
    help="Only runs started up to then, or so long ago.",
)  # fmt: skip
@click.option(
    "--text", default="", metavar="TEXT",
    help="Only runs with this in their error, title or labels, or these first or last digits.",
)  # fmt: skip
@params.label_option
@click.option("--key", metavar="TEXT", help="Only the run of --flow that has this key.")
@click.option(
    "--input", type=params.json_value, metavar="JSON", help="Only runs whose input contains this."
)
@click.option(
    "--after", type=page_key, metavar="KEY", help="Go on behind `next` of the list before."
)
@params.LIMIT_OPTION
@pass_app
def list_(app: App, /, after: PageKey | None, limit: int, **given: Any) -> None:
    """List the newest runs; with -v whole ids and errors, and the runs that undo others.

    \b
    Example: pgflowd runs list --status failed --since 1d
             pgflowd runs list --status scheduled --label customer=42
             pgflowd runs list --text TimeoutError --until 2d
             pgflowd runs list --flow orders --input '{"customer": 42}'
    """
    given["labels"], given["key"] = dict(given["labels"]), checked_key(given["flow"], given["key"])
    given["input"] = None if given["input"] is None else encode(given["input"])
    given |= {name: _ago(given[name]) for name in ("since", "until")}
    wanted = RunFilter(**given, with_undos=app.verbose)
    with database(app) as conn:
        page = perform(conn, db.run_details.find_page(wanted, limit, after, MAX_SEEN))
        if app.json:
            page = replace(page, count=execute(conn, db.run_details.count_runs(wanted)))
        now = time_of(conn)
    if app.json:
        app.print_document(page)
    elif not (page.runs or after) and wanted.is_empty:
        app.note("there are no runs yet; `pgflowd runs start FLOW` starts one")
    else:
        print_runs(app, page.runs, now)
        # how to go on, for who pages already, or where it has stopped before the list was full
        if page.next is not None and (after or len(page.runs) < limit):
            looked = f"it has looked at {page.seen:,} runs, back to {ago(page.next.at, now)}"
            app.note(f"{looked}; the same with `--after {page.next.text}` goes on")


def _ago(time: datetime | float | None) -> Moment:
    if isinstance(time, datetime):
        return Moment(time)
    return Moment(in_s=None if time is None else -time)


runs.add_command(run_log)
runs.add_command(output)


@runs.command(prints=StepTasksPage)
@params.run_argument
@click.argument("step", metavar="STEP", type=params.STEP)
@params.status_option(TASK_STATUSES, "; it looks at 20,000 tasks")
@click.option(
    "--after", type=click.IntRange(-1), default=-1, metavar="N", help="Only tasks after this index."
)
@params.LIMIT_OPTION
@pass_app
def tasks(app: App, run: str, step: str, statuses: Sequence[str], after: int, limit: int) -> None:
    """List the tasks of a step of a run, in their order, with the last attempt of each.

    \b
    Example: pgflowd runs tasks @last fetch --status failed
             pgflowd runs tasks 7f3a9c12 fetch --after 5000
    """
    with database(app) as conn:
        run_id = find_run(conn, run)
        page = perform(conn, db.run_details.find_tasks(run_id, step, statuses, after, limit))
        if app.json:
            page = replace(page, strip=execute(conn, db.run_details.step_strip(run_id, step)))
        now = time_of(conn)
    nothing = "it has no such tasks" if statuses or after >= 0 else "it has no tasks yet"
    app.print_found(page, page.tasks, lambda: print_step_tasks(app, page, now), nothing)
    if page.after is not None and not app.json:
        # no next page is promised where only some statuses are wanted
        chosen = "".join(f" --status {status}" for status in statuses)
        words = f"{short_id(page.run_id)} {page.step}{chosen} --after {page.after}"
        looked = f"it has looked at the tasks up to #{page.after}"
        app.note(f"{looked}; `pgflowd runs tasks {words}` goes on")


for _command in (*MADE, reschedule, signal, approve, reject, prune):
    runs.add_command(_command)


@click.group(cls=Group)
def signals() -> None:
    """List the signals that were sent to runs.

    `runs signal` sends one.

    \b
    Example: pgflowd signals list --open
    """


@signals.command("list", prints=Signals)
@click.option("--run", type=params.RUN, metavar="RUN", help="Only signals of this run.")
@click.option("--open", "only_open", is_flag=True, help="Only those that no task has got.")
@params.LIMIT_OPTION
@pass_app
def list_sent(app: App, run: str | None, only_open: bool, limit: int) -> None:
    """List the newest signals.

    \b
    Example: pgflowd signals list --run @last
    """
    with database(app) as conn:
        run_id = None if run is None else find_run(conn, run)
        found = execute(conn, db.waits.list_signals(run_id, only_open, limit))
        now = time_of(conn)
    nothing = "there are no such signals" if run or only_open else "there are no signals yet"
    names, losing = "run_id name sent_at sender receiver payload", "payload sender sent_at receiver"
    show = partial(print_list, app, found, names, losing, now=now)
    app.print_found(Signals(found), found, show, nothing)
