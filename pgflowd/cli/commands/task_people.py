"""
`pgflowd tasks claim`, `extend`, `complete`, `fail` and `release`: a person does what else a worker
does.

They need the database and no daemon. A person sends no heartbeats, so a claim asks for a lease that
is long enough.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import find_task, flow_slugs
from pgflowd.cli.params import DURATION, FLOW, JSON, NEEDS, OPEN_TASK
from pgflowd.core.documents import plain
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.json import encode
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.text import brief, short_id, task_name
from pgflowd.errors import LeaseLost, NotFound, NotOpen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgflowd.core.documents.flows import TaskKey
    from pgflowd.core.documents.people import HeldTask
    from pgflowd.db.query import Query

DAY_S = 86400.0
MOST_LEASE_S = 30 * DAY_S  # so does pgflowd.task_claim say
LATE = "late"

task_argument = click.argument("task", metavar="TASK", type=OPEN_TASK)
as_option = click.option(
    "--as", "actor", metavar="NAME", help="Who does it; by default the database's user."
)
token_option = click.option(
    "--token", type=int, metavar="N", help="Only with this token, which a claim printed."
)


@click.command(cls=Command)
@click.argument("flow", metavar="[FLOW]", type=FLOW, required=False)
@click.option(
    "--caps",
    type=NEEDS,
    metavar="A,B",
    default=(),
    help="Only a task that needs something, and no more than these.",
)
@as_option
@click.option(
    "--lease", type=DURATION, metavar="DUR", default="1d",
    help="How long it is theirs, up to 30d; by default 1d.",
)  # fmt: skip
@pass_app
def claim(app: App, flow: str | None, caps: Sequence[str], actor: str | None, lease: float) -> None:
    """Take a task of FLOW, or of any flow, by default one that needs no caps; the oldest first.

    Nobody else gets it until --lease is over; then it is queued again. Exit code 1: there is none.

    \b
    Example: pgflowd tasks claim contracts --caps human.review --as jane --lease 2d
    """
    from pgflowd.db import people
    from pgflowd.db.query import execute

    _check_lease(lease)
    with database(app) as conn:
        known = flow_slugs(conn)
        if flow is not None and known and flow not in known:
            raise unknown_flow(flow, known)
        task = execute(conn, people.claim(flow, caps, lease, actor))
    if app.json:
        app.print_document(task=None if task is None else task.to_json())
    elif task is not None:
        _print_claimed(app, task, actor)
    if task is None:
        able = f" that needs {', '.join(caps)}" if caps else ""
        of_flow, option = (f" of {flow}", f" --flow {flow}") if flow else ("", "")
        app.note(f"no task{of_flow} is ready{able}; see `pgflowd tasks list{option}`")
        app.exit(ExitCode.NO)


def _check_lease(lease_s: float) -> None:
    if not 0 < lease_s <= MOST_LEASE_S:
        raise click.UsageError("--lease is more than nothing and 30d at most")


def _print_claimed(app: App, task: HeldTask, actor: str | None) -> None:
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


@click.command(cls=Command)
@task_argument
@click.option(
    "--lease", type=DURATION, metavar="DUR", required=True,
    help="How long it stays theirs from now on, up to 30d.",
)  # fmt: skip
@as_option
@token_option
@pass_app
def extend(app: App, task: str, lease: float, actor: str | None, token: int | None) -> None:
    """Keep a task that is claimed for longer. A lease that lasts for longer stays.

    \b
    Example: pgflowd tasks extend 7f3a9c12/review#0 --lease 2d --as jane
    """
    from pgflowd.db import people
    from pgflowd.db.query import execute

    _check_lease(lease)
    with database(app) as conn:
        key = find_task(conn, task)
        until = execute(conn, people.extend(key, lease, actor, token))
    shown = f"{until.astimezone():%Y-%m-%d %H:%M}"
    result = plain({"lease_until": until})
    app.print_result(f"{task_name(*key)}  until {shown}", **key.to_json(), **result)


@click.command(cls=Command)
@task_argument
@click.argument("output", metavar="OUTPUT|-|@FILE", type=JSON)
@as_option
@token_option
@pass_app
def complete(app: App, task: str, output: Any, actor: str | None, token: int | None) -> None:
    """Complete a task that is claimed, or that nobody has, with OUTPUT.

    OUTPUT is JSON; - reads it from standard input, @FILE from a file.

    \b
    Example: pgflowd tasks complete 7f3a9c12/review#0 '{"ok": true}' --as jane
    """
    from pgflowd.db import people

    text = encode(output, what="output")
    _report(app, task, lambda key: people.complete(key, text, actor, token))


@click.command(cls=Command)
@task_argument
@click.option("--reason", metavar="TEXT", help="Why; it is added to the error.")
@click.option("--final", is_flag=True, help="Without another attempt.")
@as_option
@token_option
@pass_app
def fail(
    app: App, task: str, reason: str | None, final: bool, actor: str | None, token: int | None
) -> None:
    """Fail a task that is claimed, or that nobody has; it is tried again if attempts are left.

    \b
    Example: pgflowd tasks fail 7f3a9c12/review#0 --reason "the scan is empty" --final
    """
    from pgflowd.db import people

    _report(app, task, lambda key: people.fail(key, reason, final, actor, token))


@click.command(cls=Command)
@task_argument
@click.option("--delay", type=DURATION, metavar="DUR", default="0s", help="Not before this time.")
@click.option(
    "--needs", type=NEEDS, metavar="A,B", default=(), help="For somebody who has these caps."
)
@as_option
@token_option
@pass_app
def release(
    app: App,
    task: str,
    delay: float,
    needs: Sequence[str],
    actor: str | None,
    token: int | None,
) -> None:
    """Give a task back, its attempt unspent; postpone or hand on one that nobody has.

    \b
    Example: pgflowd tasks release 7f3a9c12/review#0 --delay 2h --as jane
             pgflowd tasks release 7f3a9c12/review#0 --needs human.lawyer --as jane
    """
    from pgflowd.db import people

    if delay and needs:
        raise click.UsageError("--delay and --needs exclude each other")
    _report(app, task, lambda key: people.release(key, delay, needs, actor, token))


def _report(app: App, word: str, report: Callable[[TaskKey], Query[str]]) -> None:
    """Report a task, and print what it became."""
    from pgflowd.db.query import execute

    with database(app) as conn:
        key = find_task(conn, word)
        try:
            result = execute(conn, report(key))
        except (LeaseLost, NotFound, NotOpen) as error:
            error.next = f"`pgflowd tasks list --run {short_id(key.run_id)}` shows its open tasks"
            raise
    app.print_result(f"{task_name(*key)}  {result}", **key.to_json(), result=result)
    if result == LATE:
        app.note("its run or step had ended before; what was reported is kept with the attempt")
        app.exit(ExitCode.NO)
