"""
The commands that change runs: those of the rows of `core.verbs`, which are made here, and
`pgflowd runs reschedule`, `prune`, `signal`, `approve` and `reject`.

They need the database and no daemon. A verb changes the runs that are named, or those that fit the
filters of `runs list`. A run that refuses is reported, and keeps none of the others; what is
printed as done has been committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypedDict
from uuid import UUID

import click

from pgflowd import db
from pgflowd.cli import params
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.commands.log import follower_of, print_events
from pgflowd.cli.database import database, execute, find_run, find_runs, perform, require_flow
from pgflowd.cli.groups import Command
from pgflowd.cli.problems import print_each, results_of
from pgflowd.cli.verbs import command_of
from pgflowd.core.documents.run_tasks import ListedSignal
from pgflowd.core.documents.runs import Runs, TimelineEntry
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import counted, did_you_mean, duration, short_id
from pgflowd.core.verbs import DELETE, RESCHEDULE, RUN_VERBS, SignalReceipt, Verb
from pgflowd.core.wishes import begins_at, changed, expires_at, labels_json
from pgflowd.errors import AccessDenied, NotFound, PgflowdError, RunEnded

if TYPE_CHECKING:
    import psycopg

    from pgflowd.db.operations import Operation

Done = tuple[str, Any]  # a line, and its document
Change = Callable[["psycopg.Connection[Any]", UUID], Done]

MAX_RUNS = 100_000  # at once; `list_runs` looks at no more
NOTED = 10_000  # after so many pruned runs it says how far it is
GIVEN_S = 1.0  # so long a command waits until a task has got its signal
PAUSE_S = 0.02  # between two looks


class PrunedRuns(TypedDict):
    deleted: Annotated[int, "how many runs; with `--dry-run` how many there are"]
    dry_run: bool


class DeletedRun(TypedDict):
    run_id: UUID
    deleted: Annotated[int, "how many runs went with it"]


class DeletedRuns(TypedDict):
    runs: Annotated[list[DeletedRun], "the runs that were named or chosen"]


class UnreadSignal(TypedDict):
    """A signal, where the role may not read signals."""

    signal_id: Annotated[int, "the id of the signal"]
    run_id: UUID


SIGNALLED = ListedSignal | UnreadSignal


def _command_of(verb: Verb[Any]) -> Command:
    """The command of a verb on runs that are named, or that fit the filters if it has them."""
    names = [str(status) for status in verb.allowed]
    runs = click.Argument(["words"], metavar="[RUN]..." if verb.is_many else "RUN...",
                          type=params.RUN, nargs=-1, required=not verb.is_many)  # fmt: skip
    filters = [
        click.Option(["--flow"], type=params.FLOW, metavar="SLUG", help="Runs of this flow."),
        click.Option(["--status", "statuses"], type=click.Choice(names), multiple=True,
                     metavar="STATUS", help=f"{', '.join(names)}; may be repeated."),
        click.Option(["--since", "since_s"], type=params.duration_s, metavar="DUR",
                     help="Runs started within this time."),
        click.Option(["--label", "labels"], **params.LABELS),
    ]  # fmt: skip
    sure = click.Option(["--yes", "is_sure"], is_flag=True, help="Do not ask about many.")
    before = [runs, *filters, sure] if verb.is_many else [runs, sure] if verb.asks else [runs]

    def act(
        app: App, /, words: Sequence[str], is_sure: bool = False, then_follow: bool = False,
        **given: Any,
    ) -> None:  # fmt: skip
        wanted = {each.name: given.pop(each.name) for each in filters if each.name in given}
        has_filters = any(value not in (None, "", ()) for value in wanted.values())
        change = partial(_change, app, verb, given)
        if then_follow and has_filters:
            raise click.UsageError("--follow needs runs that are named")
        if then_follow:
            with database(app, listening=True) as conn:
                run_ids = find_runs(conn, words)
                follower = follower_of(conn, run_ids, with_output=True)
                perform(conn, follower.skip())
                for run_id in run_ids:
                    line, _ = change(conn, run_id)
                    app.note(line)
                print_events(app, conn, follower, good=verb.good)
            return
        if bool(words) == has_filters:
            text = "name runs, or choose them by --flow, --status, --since or --label"
            raise click.UsageError(f"{text}, and not both" if words else text)
        of_flags = (each.of for each in verb.arguments if each.of and given[each.name])
        usual = next(of_flags, verb.chosen or verb.allowed)
        with database(app) as conn:
            found = find_runs(conn, words) if words else _matching(conn, usual, **wanted)
            if found and (has_filters or verb.asks):
                app.confirm(f"{verb.name} {counted(len(found), 'run')}?", yes=is_sure)
            if not found:
                app.note("there are no such runs")
            of_one = partial(change, conn)
            results = results_of(found, of_one)
            if not words:  # fifty in a transaction; each is printed when it is committed
                results = (result for _, result in db.runs.change_many(conn, found, of_one))
            print_each(app, "runs", results)

    follow = click.Option(["--follow", "then_follow"], is_flag=True, help=verb.follow)
    changed = DeletedRuns if verb is DELETE else Runs
    documents = {"": changed, **({"--follow": TimelineEntry} if verb.follow else {})}
    return command_of(verb, act, before, [follow] if verb.follow else [], prints=documents)


def _change(
    app: App,
    verb: Verb[Any],
    given: Mapping[str, Any],
    conn: psycopg.Connection[Any],
    run_id: UUID,
) -> Done:
    """Change a run, and say what was done."""
    try:
        answer = perform(conn, db.operations.perform(verb, run_id, **given))
    except PgflowdError as error:
        error.next = error.next and verb.with_options(error.next)
        raise
    if isinstance(answer, int):  # so many were deleted
        more = f", with {counted(answer - 1, 'run')} that it started" if answer > 1 else ""
        return f"run {run_id} {verb.done}{more}", DeletedRun(run_id=run_id, deleted=answer)
    if answer.status is RunStatus.UNDO_FAILED:
        app.note(f"`pgflowd runs undo {short_id(run_id)} --again` undoes what is left")
    if verb.leads_to and answer.status not in verb.leads_to:
        return f"run {run_id} is {answer.status.replace('_', ' ')} already", answer
    return f"run {run_id} {verb.done}", answer


def _matching(
    conn: psycopg.Connection[Any],
    usual: Sequence[str],
    flow: str | None,
    statuses: Sequence[str],
    since_s: float | None,
    labels: Sequence[tuple[str, str]],
) -> list[UUID]:
    """The runs that fit the filters, in the order in which their locks are taken."""
    wanted = labels_json(dict(labels))
    found = execute(conn, db.runs.list_runs(flow, statuses or usual, since_s, MAX_RUNS, wanted))
    if not found:
        require_flow(conn, flow)
    return sorted(run.run_id for run in found)


MADE = tuple(_command_of(verb) for verb in RUN_VERBS if verb.help)


@click.command(cls=Command, prints=Runs)
@params.runs_argument
@click.option(
    "--after", type=params.RUN, metavar="RUN", multiple=True,
    help="Begin it when RUN has ended, instead of what it waits for; may be repeated.",
)  # fmt: skip
@click.option("--singleton", metavar="KEY", help="Its singleton key instead; none with ''.")
@params.time_options
@params.REASON_OPTION
@pass_app
def reschedule(
    app: App,
    run: Sequence[str],
    at: datetime | None,
    delay: float | None,
    expires: datetime | float | None,
    after: Sequence[str],
    singleton: str | None,
    reason: str | None,
) -> None:
    """Let planned runs begin otherwise, or open runs expire at another time.

    \b
    Example: pgflowd runs reschedule 7f3a9c12 --at 2026-12-31T08:00
             pgflowd runs reschedule @last --expires 2h
             pgflowd runs reschedule @last:report --after 19bc0de4
    """
    if (at, delay, expires, singleton) == (None,) * 4 and not after:
        raise click.UsageError("say what: --at, --delay, --expires, --after or --singleton")
    begins, ends = begins_at(at, delay), expires_at(expires)
    with database(app) as conn:
        others = find_runs(conn, after) or None
        given = changed(begins, ends, others, None, singleton) | {"reason": reason}
        act = partial(_change, app, RESCHEDULE, given, conn)
        print_each(app, "runs", results_of(find_runs(conn, run), act))


def _not_of_prune(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    """`runs delete` has this filter; somebody who tries it here is told."""
    if value is not None:
        text = (
            "prune deletes by age: --keep-failed leaves all but completed runs, and `pgflowd runs"
            " delete --status STATUS --label NAME=VALUE` deletes by status and label"
        )
        raise click.UsageError(text)


@click.command(cls=Command, prints=PrunedRuns)
@click.option(
    "--older-than",
    type=params.duration_s,
    required=True,
    metavar="DUR",
    help="That ended so long ago.",
)
@click.option("--flow", type=params.FLOW, metavar="SLUG", help="Only runs of this flow.")
@params.label_option
@click.option("--keep-failed", is_flag=True, help="Only runs that completed.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@params.YES_OPTION
@click.option("--status", hidden=True, expose_value=False, callback=_not_of_prune)
@pass_app
def prune(
    app: App,
    older_than: float,
    flow: str | None,
    labels: Sequence[tuple[str, str]],
    keep_failed: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete old runs, the oldest first, with all that belongs to them.

    A run stays with its whole family while one of it is open or younger, and while somebody waits
    for its end. The children of a run go with it, whatever their labels. A hundred at a time: it
    may be interrupted, and goes on when it is called again.

    \b
    Example: pgflowd runs prune --older-than 30d --dry-run
             pgflowd runs prune --older-than 7d --flow resize_images --label env=test --yes
    """
    gone = 0
    with database(app) as conn:
        require_flow(conn, flow)
        parts = partial(_parts, conn, older_than, flow, dict(labels), keep_failed)
        if dry_run or not yes:
            found = sum(parts(only_count=True))
        if dry_run:
            text = f"{counted(found, 'run')} would be deleted"
            app.print_result(text, PrunedRuns(deleted=found, dry_run=True))
            return
        if not yes:
            age = duration(older_than)
            app.confirm(f"delete {counted(found, 'run')} that ended over {age} ago?", yes=False)
        try:
            for part in parts(only_count=False):
                if (gone + part) // NOTED > gone // NOTED:
                    app.note(f"{counted(gone + part, 'run')} deleted so far")
                gone += part
        except KeyboardInterrupt:
            app.note(f"{counted(gone, 'run')} deleted; the same command goes on")
            raise
    app.print_result(f"{counted(gone, 'run')} deleted", PrunedRuns(deleted=gone, dry_run=False))


def _parts(
    conn: psycopg.Connection[Any],
    older_than_s: float,
    flow: str | None,
    labels: Mapping[str, str],
    keep_failed: bool,
    *,
    only_count: bool,
) -> Iterator[int]:
    """How many runs each part deletes, or would."""
    place, is_first = None, True
    while True:
        pruned = db.runs.prune_next(
            older_than_s, flow, place, labels=labels, keep_failed=keep_failed,
            only_count=only_count, is_first=is_first,
        )  # fmt: skip
        runs, place = execute(conn, pruned)
        yield runs or 0
        is_first = is_first and not runs
        if place is None:
            return


@click.command(cls=Command, prints=SIGNALLED)
@params.run_argument
@click.argument("name", metavar="NAME", type=params.SIGNAL_NAME)
@click.argument("payload", metavar="[JSON|-|@FILE]", type=params.json_value, default="null")
@click.option("--dedup", metavar="KEY", help="Send it once for each key.")
@pass_app
def signal(app: App, run: str, name: str, payload: Any, dedup: str | None) -> None:
    """Send a signal to a run: to the first task that waits for NAME, now or later.

    Its payload is JSON, by default null; - reads it from standard input, @FILE from a file.

    \b
    Example: pgflowd runs signal @last paid '{"amount": 12}'
    """
    with database(app) as conn:
        run_id = find_run(conn, run)
        _send(app, conn, run_id, db.operations.signal(run_id, name, payload, None, dedup))


def _answering(name: str, help: str, note: str, *, is_approved: bool) -> Command:
    """The command of an answer."""
    text = f'{help}\n\n\b\nExample: pgflowd runs {name} 7f3a9c12 approve --note "{note}"'

    @click.command(name, cls=Command, prints=SIGNALLED, help=text)
    @params.run_argument
    @click.argument("step", metavar="STEP", type=params.APPROVAL_STEP)
    @click.option("--note", metavar="TEXT", default="", help="Why; the run gets it.")
    @pass_app
    def answer(app: App, run: str, step: str, note: str) -> None:
        with database(app) as conn:
            run_id = find_run(conn, run)
            answer = db.operations.answer(run_id, step, is_approved, note, None, None)
            try:
                _send(app, conn, run_id, answer, "approved" if is_approved else "rejected")
            except NotFound as error:
                known = perform(conn, db.operations.get_with_states(run_id)).steps
                error.next = did_you_mean(step, known) or f"its steps are {', '.join(known)}"
                raise

    return answer


approve = _answering(
    "approve", "Approve STEP of a run, which waits for that.", "looks fine", is_approved=True
)
reject = _answering(
    "reject",
    "Reject STEP of a run, which waits for approval; the step fails.",
    "wrong address",
    is_approved=False,
)


def _send(
    app: App,
    conn: psycopg.Connection[Any],
    run_id: UUID,
    operation: Operation[SignalReceipt],
    answer: str = "",
) -> None:
    """Send a signal, and print which task got it, or which has the answer."""
    try:
        sent = perform(conn, operation)
    except RunEnded as error:
        error.next = f"`pgflowd runs show {short_id(run_id)}` shows what became of it"
        raise
    try:
        found = _given(conn, sent)
    except AccessDenied:  # a role that starts runs and reads none
        found = None
    if found is None:
        document = UnreadSignal(signal_id=sent.signal_id, run_id=run_id)
        app.print_result(f"signal sent to run {short_id(run_id)}", document)
        return
    name, run = one_line(found.name, 60), f"run {short_id(found.run_id)}"
    text = f"{answer} {name} of {run}" if answer else f"signal {name} for {run}"
    if not (answer and found.step_slug):
        became = (
            f"given to {found.receiver}" if found.step_slug else "kept until a task waits for it"
        )
        text += f": {'' if found.sent_at == sent.at else 'sent before, '}{became}"
    app.print_result(text, found)


def _given(conn: psycopg.Connection[Any], sent: SignalReceipt) -> ListedSignal | None:
    """The signal, when a task has got it, at once if none waits for it, or a second later."""
    until = time.monotonic() + GIVEN_S
    while True:
        found = execute(conn, db.waits.get_signal(sent.signal_id))
        if found is None:
            return None
        known, is_awaited = found
        if known.step_slug is not None or not is_awaited or time.monotonic() >= until:
            return known
        time.sleep(PAUSE_S)
