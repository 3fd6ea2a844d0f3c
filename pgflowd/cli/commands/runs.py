"""
`pgflowd runs`: start, show, follow and change runs.

These commands need the database and no daemon. `cli.terminal.run_view` prints runs;
`db.following` follows them, and `cli.terminal.history_view` prints what it yields.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.commands.run_following import follower_of, print_events, wait_for
from pgflowd.cli.commands.run_lists import list_, log, output, tasks
from pgflowd.cli.commands.run_verbs import MADE, approve, prune, reject, reschedule, signal
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Group
from pgflowd.cli.idle_flows import note_idle, note_paused
from pgflowd.cli.lookup import find_run, find_runs, flow_slugs
from pgflowd.cli.params import DURATION, FLOW, JSON, RUN, F, label_option, time_options
from pgflowd.cli.terminal.run_view import (
    print_run,
    print_value,
)
from pgflowd.core.documents.runs import Run, RunDetails, Runs, TimelineEntry
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.wishes import AFTER_MODES, CONFLICTS
from pgflowd.errors import UnknownFlow

if TYPE_CHECKING:
    import psycopg

    from pgflowd.core.wishes import Wishes
    from pgflowd.db.operations import Operation

run_argument = click.argument("run", metavar="RUN", type=RUN)
runs_argument = click.argument("run", metavar="RUN...", type=RUN, nargs=-1, required=True)
timeout_option = click.option(
    "--timeout", type=DURATION, metavar="DUR", help="Stop waiting after this time; the runs go on."
)


@click.group(cls=Group)
def runs() -> None:
    """Start, show, follow, signal and change runs.

    RUN is an id, its last digits, or @last.

    \b
    Example: pgflowd runs start analyze_website '{"url": "https://example.com"}' --follow
    """


def wish_options(command: F) -> F:
    """What a start may ask for: times, runs before it, labels, a singleton key."""
    for option in (
        click.option("--on-conflict", type=click.Choice(CONFLICTS), metavar="WORD",
                     help=f"While another run has the key: {', '.join(CONFLICTS)}."),
        click.option("--singleton", metavar="KEY",
                     help="Only one run at a time has this key; none with ''."),
        label_option,
        click.option("--after-mode", type=click.Choice(AFTER_MODES), metavar="MODE",
                     help="completed, the default: cancel it if one of them does not complete;"
                          " ended: begin it all the same."),
        click.option("--after-key", "after_keys", metavar="KEY", multiple=True,
                     help="Likewise, the run of FLOW that was started with this key."),
        click.option("--after", type=RUN, metavar="RUN", multiple=True,
                     help="Begin it when RUN has ended; may be repeated."),
    ):  # fmt: skip
        command = option(command)
    return time_options(command)


def wishes_of(
    conn: psycopg.Connection[Any],
    at: datetime | None,
    delay: float | None,
    expires: datetime | float | None,
    after: Sequence[str] = (),
    after_keys: Sequence[str] = (),
    after_mode: str | None = None,
    labels: Sequence[tuple[str, str]] = (),
    singleton: str | None = None,
    on_conflict: str | None = None,
) -> Wishes:
    """The wishes that the options name."""
    given: dict[str, Any] = {
        "at": at, "delay": delay, "expires": expires, "labels": dict(labels) or None,
        "singleton": singleton, "on_conflict": on_conflict,
        "after": find_runs(conn, after) or None, "after_keys": after_keys or None,
        "after_mode": after_mode,
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}  # type: ignore[return-value]


@runs.command(prints={"": Run, "--wait": Runs, "--follow": TimelineEntry})
@click.argument("flow", metavar="FLOW", type=FLOW)
@click.argument("input", metavar="[INPUT|-|@FILE]", type=JSON, default="{}")
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
    from pgflowd.db import flows, operations

    _check_following(follow, wait, timeout)
    run_id = run_id if run_id or key is not None else operations.new_run_id()
    with database(app, listening=follow or wait) as conn:
        flows.check_input(conn, flow, input)
        operation = operations.start(flow, input, run_id, key, wishes_of(conn, **wishes))
        # it listens before the start, so it misses no line of output; an id of a key comes later
        follower = follower_of(conn, [run_id], with_output=True) if follow and run_id else None
        started = _start(app, conn, flow, operation, awaits=follow or wait)
        if follow and not follower:
            follower = follower_of(conn, [started.run_id], with_output=True)
        if follower:
            print_events(app, conn, follower, timeout)
        elif wait:
            app.note(f"run {started.run_id} {started.status}")
            wait_for(app, conn, [started.run_id], timeout)
        else:
            app.print_result(str(started.run_id), started)


def _check_following(follow: bool, wait: bool, timeout_s: float | None) -> None:
    if follow and wait:
        raise click.UsageError("--follow and --wait exclude each other")
    if timeout_s is not None and not (follow or wait):
        raise click.UsageError("--timeout needs --follow or --wait")


def _start(
    app: App, conn: psycopg.Connection[Any], flow: str, operation: Operation[Run], *, awaits: bool
) -> Run:
    """Start a run. If there is no such flow, the error names the nearest one."""
    from pgflowd.db import performing

    try:
        started = performing.run_sync(conn, operation)
    except UnknownFlow as error:
        raise unknown_flow(flow, flow_slugs(conn)) from error
    if awaits:
        note_idle(app, conn, flow)
    return started


@runs.command(prints={"": RunDetails, "--input": None, "--output": None})
@run_argument
@click.option("--input", "with_input", is_flag=True, help="Print only its whole input.")
@click.option("--output", "with_output", is_flag=True, help="Print only its whole output.")
@click.option("--attempts", "with_attempts", is_flag=True, help="List its attempts.")
@click.option("--checkpoints", "with_checkpoints", is_flag=True, help="List what its tasks saved.")
@click.option("--tree", "with_family", is_flag=True, help="Show its children, and who started it.")
@pass_app
def show(
    app: App,
    run: str,
    with_input: bool,
    with_output: bool,
    with_attempts: bool,
    with_checkpoints: bool,
    with_family: bool,
) -> None:
    """Show a run: its graph, with the status of each step, and what it waits for.

    \b
    Example: pgflowd runs show @last
             pgflowd runs show 7f3a9c12 --output
             pgflowd runs show 7f3a9c12 --tree
    """
    from pgflowd.db.performing import run_sync
    from pgflowd.db.run_details import read_details

    if with_input and with_output:
        raise click.UsageError("--input and --output exclude each other")
    with database(app) as conn:
        operation = read_details(
            find_run(conn, run),
            with_attempts=with_attempts,
            with_checkpoints=with_checkpoints,
            with_family=with_family,
            trace_url=app.settings.telemetry.trace_url,
        )
        details = run_sync(conn, operation)
        if not (details.run.has_ended or with_input or with_output):
            note_paused(app, conn, details.run.flow_slug)
    if with_input or with_output:
        print_value(app, details.run.input if with_input else details.run.output)
    elif app.json:
        app.print_document(details)
    else:
        print_run(app, details)


@runs.command(prints=TimelineEntry)
@runs_argument
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
@runs_argument
@timeout_option
@pass_app
def wait(app: App, run: Sequence[str], timeout: float | None) -> None:
    """Wait until runs end, then print their outputs.

    The exit code is 0 if all runs completed, 1 if not, 5 if --timeout passed first.

    \b
    Example: pgflowd runs wait @last --timeout 30s
    """
    with database(app, listening=True) as conn:
        wait_for(app, conn, find_runs(conn, run), timeout)


for _command in (list_, log, output, tasks, *MADE, reschedule, signal, approve, reject, prune):
    runs.add_command(_command)
