"""
`pgflowd tasks`, `stalled` and `dead`: list open, stalled and failed tasks, and decide about them.

They need the database and no daemon. A person does what else a worker does, but sends no
heartbeats, so a claim asks for a lease that is long enough. The daemon's sweeper recovers stalled
tasks by itself: `pgflowd stalled` is for tasks that stall again and again, and for times without a
daemon; it never touches a running task.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict

import click

from pgflowd import db
from pgflowd.cli import params
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.database import (
    database,
    execute,
    find_run,
    find_task,
    note_paused,
    perform,
    require_flow,
    time_of,
)
from pgflowd.cli.groups import Command, Group
from pgflowd.cli.terminal.list_view import print_tasks
from pgflowd.cli.terminal.texts import print_list
from pgflowd.cli.verbs import command_of
from pgflowd.core import verbs
from pgflowd.core.documents import Inline, TaskKey
from pgflowd.core.documents.flows import StalledTask, StalledTasks
from pgflowd.core.documents.run_tasks import DeadLetter, HeldTask, OpenTask, ReportedTask
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.json import encode
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.statuses import OPEN_TASK_STATUSES
from pgflowd.core.text import brief, short_id, task_name
from pgflowd.errors import LeaseLost, NotFound, NotOpen

if TYPE_CHECKING:
    import psycopg


LATE = "late"
AS: dict[str, Any] = {"metavar": "NAME", "help": "Who does it; by default the database's user."}


class Tasks(TypedDict):
    """
    Open tasks: of a run the first 10,000, else those of the first 10,000 messages of each queue;
    with `--status waiting` alone all that wait.
    """

    tasks: Annotated[Sequence[OpenTask], "the oldest first"]


class ClaimedTask(TypedDict):
    """With exit code 1 if no task is ready."""

    task: Annotated[HeldTask | None, "the task; null if none is ready"]


class ExtendedTask(NamedTuple):
    key: Inline[TaskKey]
    lease_until: Annotated[datetime, "when its lease ends now"]


class RequeuedTasks(TypedDict):
    requeued: Annotated[Sequence[TaskKey], "the tasks that are queued again"]
    left: Annotated[Sequence[TaskKey], "those that are not stalled any more"]


class FailedTasks(TypedDict):
    failed: Annotated[Sequence[TaskKey], "the tasks that failed for good"]
    left: Annotated[Sequence[TaskKey], "those that are not stalled any more"]


class DeadLetters(TypedDict):
    """Tasks that failed for good, of the newest 100,000 runs."""

    tasks: Annotated[Sequence[DeadLetter], "those that failed for good, the newest first"]


@click.group(cls=Group)
def tasks() -> None:
    """List open tasks, end the wait of one, and do one by hand.

    TASK is RUN/STEP#INDEX.

    \b
    Example: pgflowd tasks list --status waiting
    """


@tasks.command("list", prints=Tasks)
@params.status_option(OPEN_TASK_STATUSES)
@click.option("--flow", type=params.FLOW, metavar="SLUG", help="Only tasks of this flow.")
@click.option("--run", type=params.RUN, metavar="RUN", help="Only tasks of this run.")
@click.option(
    "--needs", type=params.caps, metavar="A,B", default=(),
    help="Only tasks that wait for a worker with these.",
)  # fmt: skip
@params.LIMIT_OPTION
@pass_app
def list_open(app: App, /, flow: str | None, run: str | None, limit: int, **given: Any) -> None:
    """List open tasks, the oldest first, and what they wait for; with -v whole ids.

    \b
    Example: pgflowd tasks list --status waiting
    """
    if flow and run:
        raise click.UsageError("--flow and --run exclude each other: a run has one flow")
    with database(app) as conn:
        run_id = None if run is None else find_run(conn, run)
        finding = db.run_details.find_open_tasks(run_id, flow, most=limit, **given)
        found, now = perform(conn, finding), time_of(conn)
        for slug in dict.fromkeys(task.flow_slug for task in found):
            note_paused(app, conn, slug)
    some = flow or run or any(given.values())
    nothing = "there are no such tasks" if some else "no task is open"
    app.print_found(Tasks(tasks=found), found, lambda: print_tasks(app, found, now), nothing)


@tasks.command(prints=ClaimedTask)
@click.argument("flow", metavar="[FLOW]", type=params.FLOW, required=False)
@click.option(
    "--caps", type=params.caps, metavar="A,B", default=(),
    help="Only a task that needs something, and no more than these.",
)  # fmt: skip
@click.option("--as", "actor", **AS)
@click.option(
    "--lease", type=params.duration_s, metavar="DUR", default="1d",
    help="How long it is theirs, up to 30d; by default 1d.",
)  # fmt: skip
@pass_app
def claim(app: App, flow: str | None, caps: Sequence[str], actor: str | None, lease: float) -> None:
    """Take a task of FLOW, or of any flow, by default one that needs no caps; the oldest first.

    Nobody else gets it until --lease is over; then it is queued again. Exit code 1: there is none.

    \b
    Example: pgflowd tasks claim contracts --caps human.review --as jane --lease 2d
    """
    _check_lease(lease)
    with database(app) as conn:
        known = db.run_details.flow_slugs(conn)
        if flow is not None and known and flow not in known:
            raise unknown_flow(flow, known)
        task = execute(conn, db.waits.claim(flow, caps, lease, actor))
    if app.json:
        app.print_document(ClaimedTask(task=task))
    elif task is not None:
        name = task_name(*task.key)
        until = f"{task.lease_until.astimezone():%Y-%m-%d %H:%M}"
        app.print(f"{name}  token {task.token}  until {until}")
        for label, value in (("run", task.flow_input), ("input", task.input)):
            if value not in (None, {}):
                app.print(f"  {label:5}  {app.out.shown(app.hide(brief(value, 1000)))}")
        by = f" --as {shlex.quote(actor)}" if actor else ""
        app.hint([
            (f"pgflowd tasks complete {name} OUTPUT{by}", "OUTPUT is JSON"),
            (f"pgflowd tasks release {name}{by}", "give it back"),
        ])  # fmt: skip
    if task is None:
        able = f" that needs {', '.join(caps)}" if caps else ""
        of_flow, option = (f" of {flow}", f" --flow {flow}") if flow else ("", "")
        app.note(f"no task{of_flow} is ready{able}; see `pgflowd tasks list{option}`")
        app.exit(ExitCode.NO)


def _check_lease(lease_s: float) -> None:
    if not 0 < lease_s <= verbs.MAX_LEASE_S:
        raise click.UsageError("--lease is more than nothing and 30d at most")


@tasks.command(prints=ExtendedTask)
@click.argument("task", metavar="TASK", type=params.OPEN_TASK)
@click.option(
    "--lease", type=params.duration_s, metavar="DUR", required=True,
    help="How long it stays theirs from now on, up to 30d.",
)  # fmt: skip
@click.option("--as", "actor", **AS)
@click.option(verbs.TOKEN.flag, type=int, metavar="N", help=verbs.TOKEN.help)
@pass_app
def extend(app: App, task: str, lease: float, actor: str | None, token: int | None) -> None:
    """Keep a task that is claimed for longer. A lease that lasts for longer stays.

    \b
    Example: pgflowd tasks extend 7f3a9c12/review#0 --lease 2d --as jane
    """
    _check_lease(lease)
    with database(app) as conn:
        key = find_task(conn, task)
        given: dict[str, Any] = {"lease": lease, "token": token, "actor": actor}
        until = perform(conn, db.operations.perform(verbs.EXTEND, *key, **given))
    shown = f"{until.astimezone():%Y-%m-%d %H:%M}"
    app.print_result(f"{task_name(*key)}  until {shown}", ExtendedTask(key, until))


def _of_task(verb: verbs.Verb[str]) -> Command:
    """The command of a verb on a task, which prints what the task became."""

    def act(app: App, /, task: str, **given: Any) -> None:
        if given.get("delay") and given.get("needs"):
            raise click.UsageError("--delay and --needs exclude each other")
        if "output" in given:
            given["output"] = encode(given["output"], what="output")
        with database(app) as conn:
            key = find_task(conn, task)
            try:
                result = perform(conn, db.operations.perform(verb, *key, **given))
            except (LeaseLost, NotFound, NotOpen) as error:
                error.next = "`pgflowd tasks list --status waiting` lists the tasks that wait"
                if verb is not verbs.WAKE:
                    lists = f"`pgflowd tasks list --run {short_id(key.run_id)}`"
                    error.next = f"{lists} shows its open tasks"
                raise
        app.print_result(f"{task_name(*key)}  {result}", ReportedTask(key, result))
        if result == LATE:
            app.note("its run or step had ended before; what was reported is kept with the attempt")
            app.exit(ExitCode.NO)

    word = params.WAITING_TASK if verb is verbs.WAKE else params.OPEN_TASK
    argument = click.Argument(["task"], metavar="TASK", type=word)
    by_person = [click.Option(["--as", "actor"], **AS)] if verbs.TOKEN in verb.arguments else []
    return command_of(verb, act, [argument], by_person, prints=ReportedTask)


for verb in (verbs.WAKE, verbs.COMPLETE, verbs.FAIL, verbs.RELEASE):
    tasks.add_command(_of_task(verb))


@click.group(cls=Group)
def stalled() -> None:
    """List, requeue and fail stalled tasks, which no worker works on or will meet.

    They are started, and their worker has vanished; or queued, and their message is gone.
    TASK is RUN/STEP#INDEX.

    \b
    Example: pgflowd stalled requeue --all
    """


@stalled.command("list", prints=StalledTasks)
@pass_app
def list_stalled(app: App) -> None:
    """List the stalled tasks, oldest first.

    \b
    Example: pgflowd stalled list
    """
    with database(app) as conn:
        found, now = _found(app, conn), time_of(conn)

    names = "key flow_slug stalled_at attempt times reason"
    losing = "attempt times flow_slug reason stalled_at"
    show = partial(print_list, app, found, names, losing, now=now, whole_ids=False, cutting=False)
    app.print_found(StalledTasks(found), found, show, "no task is stalled")


def _of_stalled(verb: verbs.Verb[bool]) -> Command:
    """The command of a verb on tasks that are stalled; it leaves and reports those that are not."""

    def act(app: App, /, words: Sequence[str], all_: bool, **given: Any) -> None:
        if bool(words) == all_:
            raise click.UsageError("name tasks, or give --all")
        changed: list[TaskKey] = []
        left: list[TaskKey] = []
        given["stale_threshold"] = app.settings.recovery.stale_threshold_s
        with database(app) as conn:
            keys = [find_task(conn, word) for word in words]
            for key in dict.fromkeys(keys or [task.key for task in _found(app, conn)]):
                was_stalled = perform(conn, db.operations.perform(verb, *key, **given))
                (changed if was_stalled else left).append(key)
        if app.json:
            app.print_document({verb.done: changed, "left": left})
        for key in changed if not app.json else []:
            app.print(f"{task_name(*key)}  {verb.done}")
        for key in left:
            app.note(f"{task_name(*key)} is not stalled; it was left as it is")
        if not (changed or left):
            app.note("no task is stalled")
        if left and not all_:
            app.exit(ExitCode.REFUSED)

    before = [
        click.Argument(["words"], metavar="[TASK]...", type=params.TASK, nargs=-1),
        click.Option(["--all", "all_"], is_flag=True, help="Every stalled task."),
    ]
    prints = RequeuedTasks if verb is verbs.REQUEUE else FailedTasks
    return command_of(verb, act, before, prints=prints)


def _found(app: App, conn: psycopg.Connection[Any]) -> list[StalledTask]:
    return execute(conn, db.waits.stalled_tasks(app.settings.recovery.stale_threshold_s))


for _verb in (verbs.REQUEUE, verbs.GIVE_UP):
    stalled.add_command(_of_stalled(_verb))


@click.group(cls=Group)
def dead() -> None:
    """List dead letters: tasks that have failed for good, and their runs with them.

    `runs retry` lets their runs go on.

    \b
    Example: pgflowd dead list --flow send_email
    """


@dead.command("list", prints=DeadLetters)
@click.option("--flow", type=params.FLOW, metavar="SLUG", help="Only tasks of this flow.")
@click.option(
    "--since", type=params.duration_s, metavar="DUR", help="Of runs started within this time."
)
@params.LIMIT_OPTION
@pass_app
def list_dead(app: App, flow: str | None, since: float | None, limit: int) -> None:
    """List the tasks that failed for good, those of the newest runs first.

    \b
    Example: pgflowd dead list --flow send_email --since 1d
    """
    with database(app) as conn:
        found = execute(conn, db.runs.dead_letters(flow, since, limit))
        if not found:
            require_flow(conn, flow)
        now = time_of(conn)
    nothing = "there are no such tasks" if flow or since else "no task has failed for good"
    names, losing = "key flow failed_at attempts error", "attempts flow failed_at error"
    shown: dict[str, Any] = {"whole_ids": False, "error": lambda dead: dead.error or dead.outcome}
    show = partial(print_list, app, found, names, losing, now=now, **shown)
    app.print_found(DeadLetters(tasks=found), found, show, nothing)
