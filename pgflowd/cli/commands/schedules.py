"""
`pgflowd schedules`: list what starts runs by the calendar; fire, pause, add and remove it.

They need the database; ticks need a daemon. `cli.terminal.list_view` prints schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict, get_args
from zoneinfo import available_timezones

import click

from pgflowd import db
from pgflowd.cli import params
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.database import database, execute, perform, require_flow, time_of, unknown_flow
from pgflowd.cli.groups import Group
from pgflowd.cli.terminal.list_view import next_text, print_schedules, tick_lines
from pgflowd.cli.verbs import changing, perform_on
from pgflowd.core.definition.schedule import Overlap, Schedule
from pgflowd.core.documents import Inline
from pgflowd.core.documents.schedules import Fired, ListedSchedule
from pgflowd.core.lookup import unknown_schedule
from pgflowd.core.ticks import expression_fault, in_words, ticks_after, zone_fault
from pgflowd.core.verbs import FIRE, PAUSE_SCHEDULE, REMOVE_SCHEDULE, RESUME_SCHEDULE
from pgflowd.errors import NotFound

if TYPE_CHECKING:
    import psycopg


name_argument = click.argument("name", metavar="NAME", type=params.SCHEDULE)


class Schedules(TypedDict):
    schedules: Annotated[Sequence[ListedSchedule], "by their names"]


class NextTicks(TypedDict):
    name: str
    paused: Annotated[bool, "whether it is, so that none of them comes"]
    ticks: Annotated[Sequence[datetime], "the next ones"]


class FiredSchedule(NamedTuple):
    name: str
    fired: Inline[Fired]


class ChangedSchedule(TypedDict):
    name: str
    changed: Annotated[bool, "whether anything changed: false if it was so already"]


class AddedSchedule(TypedDict):
    name: str
    flow: str
    changed: Annotated[bool, "whether there was one of this name"]
    next_at: Annotated[datetime | None, "its next tick"]


class RemovedSchedule(TypedDict):
    name: str
    removed: bool
    origin: Annotated[str, "`code` or `operator`"]


@click.group(cls=Group)
def schedules() -> None:
    """List schedules, which start runs by the calendar; fire, pause and change them.

    \b
    Example: pgflowd schedules list
    """


@schedules.command("list", prints=Schedules)
@click.option("--flow", type=params.FLOW, metavar="FLOW", help="Only those of this flow.")
@pass_app
def list_(app: App, flow: str | None) -> None:
    """List the schedules: when each ticks, and how its last run went.

    \b
    Example: pgflowd schedules list --flow reports
    """
    with database(app) as conn:
        found, now = execute(conn, db.waits.list_schedules(flow)), time_of(conn)
        if not found:
            require_flow(conn, flow)
    nothing = "there are no schedules; `pgflowd schedules add` and cron= in a flow make some"
    document = Schedules(schedules=found)
    app.print_found(document, found, lambda: print_schedules(app, found, now), nothing)


@schedules.command("next", prints=NextTicks)
@name_argument
@click.option(
    "--count", type=params.NumberParam(1, 1000), default=5, metavar="N", help="By default 5."
)
@pass_app
def next_(app: App, name: str, count: int) -> None:
    """Print the next ticks of a schedule, with the changes of summer time between them.

    \b
    Example: pgflowd schedules next nightly --count 3
    """
    with database(app) as conn:
        listed, now = _listed(conn), time_of(conn)
    if name not in listed:
        raise unknown_schedule(name, listed)
    found = listed[name]
    fault = expression_fault(found.cron) or zone_fault(found.timezone)
    if fault:
        raise click.ClickException(f"schedule {name} has no ticks: {found.error or fault}")
    ticks = list(islice(ticks_after(found.cron, found.timezone, now), count))
    if app.json:
        app.print_document(NextTicks(name=name, paused=found.paused_at is not None, ticks=ticks))
        return
    app.print_lines(tick_lines(ticks, found, now))
    if found.paused_at is not None:
        app.note(f"{name} is paused; `pgflowd schedules resume {name}` lets it tick")


@schedules.command(prints=FiredSchedule)
@name_argument
@pass_app
def fire(app: App, name: str) -> None:
    """Start a run of a schedule now, besides its ticks; also of one that is paused.

    \b
    Example: pgflowd schedules fire nightly
    """
    fired = perform_on(app, FIRE, name, _unknown)
    text = f"run {fired.run_id} {fired.status}"
    if not fired.is_new:
        text = f"run {fired.run_id} of {name} has not ended, and its overlap is skip"
    app.print_result(app.out.folded(text), FiredSchedule(name, fired))


@schedules.command(prints=AddedSchedule)
@name_argument
@params.flow_argument
@click.argument("cron", metavar="CRON")
@click.option(
    "--input", "input_", type=params.json_value, metavar="JSON", help="The input of its runs; {}."
)
@click.option(
    "--timezone", default="UTC", metavar="TZ", help="Such as Europe/Berlin; UTC.",
    shell_complete=params.completing(lambda: sorted(available_timezones())),
)  # fmt: skip
@click.option(
    "--overlap", default="skip", metavar="WORD",
    help="While its last run has not ended: skip, allow, wait, replace.",
    shell_complete=params.completing(lambda: get_args(Overlap)),
)  # fmt: skip
@click.option(
    "--catchup", default="one", metavar="WORD",
    help="Of the ticks that no daemon was there for, run: one, none, all.",
    shell_complete=params.completing(lambda: ("one", "none", "all")),
)  # fmt: skip
@pass_app
def add(app: App, /, name: str, flow: str, input_: Any, **ticks: Any) -> None:
    """Add a schedule, or change one that was added so.

    CRON has five fields, or is @hourly, @daily, @weekly, @monthly, @yearly or "@every 30s".

    \b
    Example: pgflowd schedules add morning reports "0 9 * * MON-FRI" --timezone Europe/Berlin
             pgflowd schedules add poll fetch_orders "@every 15m" --input '{"full": false}'
    """
    wanted = Schedule(input={} if input_ is None else input_, **ticks)
    with database(app) as conn:
        try:
            changed = perform(conn, db.operations.add_schedule(name, flow, wanted, None))
        except NotFound as error:
            raise unknown_flow(conn, flow) from error
        now = time_of(conn)
    tick = next(ticks_after(wanted.cron, wanted.timezone, now))
    when = in_words(wanted.cron, wanted.timezone)
    when = f"{when}, next {next_text(tick, wanted.timezone, now)}"
    text = f"schedule {name} {'set' if changed else 'is so already'}: {when}"
    document = AddedSchedule(name=name, flow=flow, changed=changed, next_at=tick)
    app.print_result(app.out.folded(text), document)


@schedules.command(prints=RemovedSchedule)
@name_argument
@pass_app
def remove(app: App, name: str) -> None:
    """Delete a schedule. Its runs stay.

    One of the code comes back when a worker with this code starts.

    \b
    Example: pgflowd schedules remove morning
    """
    origin = perform_on(app, REMOVE_SCHEDULE, name, _unknown)
    app.print_result(
        f"schedule {name} is removed", RemovedSchedule(name=name, removed=True, origin=origin)
    )
    if origin == "code":
        app.note("it comes back when a worker whose code has it starts; `pause` lasts")


def _unknown(conn: psycopg.Connection[Any], name: str) -> NotFound:
    return unknown_schedule(name, _listed(conn))


def _listed(conn: psycopg.Connection[Any]) -> dict[str, ListedSchedule]:
    return {each.name: each for each in execute(conn, db.waits.list_schedules())}


for verb in (PAUSE_SCHEDULE, RESUME_SCHEDULE):
    schedules.add_command(changing(verb, "name", params.SCHEDULE, _unknown, ChangedSchedule))
