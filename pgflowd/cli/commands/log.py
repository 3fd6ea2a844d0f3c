"""
What happened, and what goes on: `pgflowd log`, `pgflowd runs log` and `output`; and what the
commands have in common that follow runs.

A log of the database is followed by reading it again and again. An entry is written when its
transaction commits, with a moment that may be long over by then. So each look begins a minute
before the last moment that it knows, each minute one reads everything, and so does the last one.
Entries are known by their keys; none is missed, and none comes twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar
from uuid import UUID

import click

from pgflowd import db
from pgflowd.cli import params
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.database import database, execute, find_run, perform, reconnector, time_of
from pgflowd.cli.groups import Command
from pgflowd.cli.terminal.history_view import LogWriter, TimelineWriter
from pgflowd.core.backoff import doubled_s
from pgflowd.core.documents.run_tasks import Actions, EventPage, PersonAction, RunEvent, is_over
from pgflowd.core.documents.runs import AttemptOutput, TimelineEntry
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.lookup import refuse_unknown_step
from pgflowd.core.output_stream import OUTPUT
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import ago, short_id
from pgflowd.core.timeline import output_entry
from pgflowd.errors import Unreachable

if TYPE_CHECKING:
    import psycopg

    from pgflowd.core.documents.runs import RunWithStates
    from pgflowd.db.client_connections import Connection
    from pgflowd.db.following import Follower
    from pgflowd.db.query import Query

MAX_FOLLOWED = 100_000  # actions that a look of a follower reads
FOLLOWED_S = 3600.0  # a follower begins with those of so long ago
OVERLAP = timedelta(minutes=1)
WHOLE_S = 60.0  # from one look at everything to the next
MIN_PAUSE_S, SHARE = 0.5, 10  # between two looks; at most a tenth of the time is spent reading
MIN_RECONNECT_S, MAX_RECONNECT_S = 0.1, 5.0
NEWEST = 1000  # events that `runs log` shows at once
MAX_ATTEMPTS = 20  # of which `runs output` shows what they printed

E = TypeVar("E", PersonAction, RunEvent)


def looks_at(
    conn: psycopg.Connection[Any],
    query: Callable[[datetime | None], Query[list[E]]],
    reopen: Callable[[], psycopg.Connection[Any]],
    is_over: Callable[[list[E]], bool] = lambda entries: False,
) -> Iterator[list[E]]:
    """
    Yield the entries of a log that are new at each look, the oldest first: first those that are
    there already, and once more after those that say it is over. A lost connection is replaced.
    """
    import psycopg

    known: set[Hashable] = set()
    last: datetime | None = None
    whole_at, pause_s, is_last = 0.0, MIN_RECONNECT_S, False
    while True:
        began = time.monotonic()
        is_whole = last is None or is_last or began >= whole_at
        try:
            if conn.closed:
                conn = reopen()
            found = execute(conn, query(None if last is None or is_whole else last - OVERLAP))
        except (Unreachable, psycopg.OperationalError):
            conn.close()
            time.sleep(pause_s)
            pause_s = doubled_s(pause_s, MIN_RECONNECT_S, MAX_RECONNECT_S)
            continue
        pause_s = MIN_RECONNECT_S
        if is_whole:
            whole_at = began + WHOLE_S
        new = [entry for entry in found if entry.key not in known]
        new.sort(key=lambda entry: entry.at)  # the order of one moment stays
        known.update(entry.key for entry in new)
        last = max((entry.at for entry in found), default=last)
        yield new
        if is_last:
            return
        is_last = is_over(new)
        if not is_last:
            time.sleep(max(MIN_PAUSE_S, (time.monotonic() - began) * SHARE))


@click.command(cls=Command, prints={"": Actions, "--follow": PersonAction})
@click.option(
    "--actions", is_flag=True, expose_value=False,
    help="What people did; there is no other log here.",
)  # fmt: skip
@click.option("--run", type=params.RUN, metavar="RUN", help="Only what was done to this run.")
@click.option("--since", type=params.duration_s, metavar="DUR", help="Only within this time.")
@click.option("--actor", metavar="NAME", help="Only by NAME; of the newest 100,000.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is done from now on.")
@params.LIMIT_OPTION
@pass_app
def log(
    app: App, run: str | None, since: float | None, actor: str | None, follow: bool, limit: int
) -> None:
    """Show what people and clients did: who, when, why. The newest come last.

    Each command and call that changed something is an action. `pgflowd runs log RUN` shows
    everything that happened in a run.

    \b
    Example: pgflowd log --since 1d
             pgflowd log --run 7f3a9c12
             pgflowd log --actor jane -f
    """
    writer = LogWriter(app)
    with database(app) as conn:
        run_id = None if run is None else find_run(conn, run)
        now = time_of(conn)
        if follow:
            begin = now - timedelta(seconds=FOLLOWED_S if since is None else since)

            def read(after: datetime | None) -> Query[list[PersonAction]]:
                first = max(after or begin, begin)
                return db.runs.list_actions(run_id, first, actor, MAX_FOLLOWED)

            looks = looks_at(conn, read, reconnector(app))
            for action in chain(next(looks)[-limit:], chain.from_iterable(looks)):
                writer.write(action)
        first = None if since is None else now - timedelta(seconds=since)
        found = execute(conn, db.runs.list_actions(run_id, first, actor, limit))
    if app.json:
        app.print_document(Actions(found))
        return
    for action in reversed(found):
        writer.write(action)
    if not found:
        some = run or since or actor
        app.note("there are no such actions" if some else "there are no actions yet")


@click.command("log", cls=Command, prints={"": EventPage, "--follow": RunEvent})
@params.run_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.option("--before", type=params.moment, metavar="TIME", help="Only what happened before.")
@click.option(
    "--limit", type=params.NumberParam(1, 1_000_000), default=NEWEST, metavar="N",
    help="The newest N, and what has the moment of the oldest of these; by default 1,000.",
)  # fmt: skip
@pass_app
def run_log(app: App, run: str, follow: bool, before: datetime | None, limit: int) -> None:
    """Show what happened in a run: its steps and attempts, its waits, and who did what.

    \b
    Example: pgflowd runs log @last
             pgflowd runs log 7f3a9c12 --follow
    """
    if follow and before is not None:
        raise click.UsageError("--follow goes on to the end; it has no --before")
    with database(app) as conn:
        run_id = find_run(conn, run)
        page = execute(conn, db.runs.event_page(run_id, before, 1 if follow else limit))
        if not page.events:
            perform(conn, db.operations.get(run_id))
        writer = LogWriter(app)
        if follow:
            query = partial(db.runs.timeline, run_id)
            for event in chain.from_iterable(looks_at(conn, query, reconnector(app), is_over)):
                writer.write(event)
            return
    if app.json:
        app.print_document(page)
        return
    for event in page.events:
        writer.write(event)
    if page.before is not None:
        older = f"`pgflowd runs log {short_id(run_id)} --before {page.before.isoformat()}`"
        app.note(f"these are the newest {len(page.events):,} events; {older} shows older ones")


class PrintedOutput(TypedDict):
    """With `--follow` the lines as they come, as `runs follow` prints them."""

    run_id: UUID
    attempts: Annotated[
        Sequence[AttemptOutput],
        "at most the newest twenty of which output is kept, in the order of their ends",
    ]


@click.command(cls=Command, prints={"": PrintedOutput, "--follow": TimelineEntry})
@params.run_argument
@click.option("--step", metavar="STEP", type=params.STEP, help="Only of this step.")
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
    with database(app, listening=follow) as conn:
        run_id = find_run(conn, run)
        details = perform(conn, db.operations.get_with_states(run_id))
        refuse_unknown_step(details, step)
        # before it reads what is kept, so that no line is missed
        follower = follower_of(conn, [run_id], with_output=True) if follow else None
        found = execute(conn, db.runs.kept_output(run_id, step, task, attempt, MAX_ATTEMPTS))
        if app.json and not follow:
            app.print_document(PrintedOutput(run_id=run_id, attempts=found))
            return
        writer, now = TimelineWriter(app), time_of(conn)
        for each in found:
            if not app.json:
                ended = f"{each.outcome.replace('_', ' ')} {ago(each.ended_at, now)}"
                name = f"{each.step_slug}#{each.task_index}, attempt {each.attempt}, {ended}"
                if each.lines is None:
                    name += ": its worker died, and what it had printed with it"
                elif each.is_cut:
                    name += "; earlier lines are not kept"
                app.note(name)
            for line in each.lines or ():
                document = {
                    "step_slug": each.step_slug,
                    "task_index": each.task_index,
                    "attempt": each.attempt,
                    "stream": line.stream,
                    "level": line.level,
                    "text": line.text,
                    "time": (each.started_at + timedelta(seconds=line.since_s)).isoformat(),
                }
                writer.write(output_entry(details, document))
        if not found and not follow:
            kept = "attempts that fail keep what they print, and those that complete with"
            text = f'nothing is kept: {kept} [worker] keep_output = "all"'
            app.print(app.out.folded(text))
            if not details.has_ended:
                app.note(
                    f"`pgflowd runs output {short_id(details.run_id)} --follow` shows what comes"
                )
        if follower:
            asked = (step, task, attempt)
            for entry in entries_of(app, conn, follower):
                pairs = zip(asked, (entry.step, entry.task, entry.attempt), strict=True)
                if entry.event == OUTPUT and all(one in (None, is_) for one, is_ in pairs):
                    writer.write(entry)
            if follower.ended[run_id].status is not RunStatus.COMPLETED:
                app.exit(ExitCode.NO)


# of commands that follow runs, or wait for them


def follower_of(
    conn: Connection, run_ids: Sequence[UUID], *, with_output: bool = False
) -> Follower[RunWithStates]:
    """A follower that hears of events from now on, and also of the output of handlers."""
    read = [db.run_details.RunEvents(run_id) for run_id in run_ids]
    follower: Follower[RunWithStates] = db.following.Follower(read, with_output=with_output)
    db.performing.run_sync(conn, follower.listen())
    return follower


def entries_of(
    app: App, conn: Connection, follower: Follower[Any], timeout_s: float | None = None
) -> Iterator[TimelineEntry]:
    """What happens until the runs end. Raises WaitTimeout; the runs go on."""
    follower.limit(timeout_s)
    return db.performing.follow_sync(follower, reconnector(app), conn)


def print_events(
    app: App,
    conn: Connection,
    follower: Follower[RunWithStates],
    timeout_s: float | None = None,
    good: RunStatus = RunStatus.COMPLETED,
) -> None:
    """Print the events of runs until they end; the exit code is 0 if all end well."""
    writer = TimelineWriter(app, many=len(follower.open) > 1)
    try:
        for entry in entries_of(app, conn, follower, timeout_s):
            writer.write(entry)
    except KeyboardInterrupt:
        for word in map(short_id, follower.open):
            app.note(f"run {word} goes on: `pgflowd runs follow {word}`")
        raise
    for run in follower.ended.values():
        if run.status is RunStatus.UNDO_FAILED:
            word = short_id(run.run_id)
            app.note(f"`pgflowd runs undo {word} --again` undoes what is left")
    exit_by_status(app, list(follower.ended.values()), good)


def exit_by_status(
    app: App, ended: Sequence[RunWithStates], good: RunStatus = RunStatus.COMPLETED
) -> None:
    """End with exit code 1 if not all runs ended so."""
    if any(run.status is not good for run in ended):
        app.exit(ExitCode.NO)
