"""
`pgflowd runs signal`, `approve` and `reject`: tell a run what it waits for.

They need the database and no daemon. A sweeper gives the signal to a task some milliseconds later,
so each waits up to a second, if a task waits for it, to print which one got it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import find_run
from pgflowd.cli.params import APPROVAL_STEP, JSON, RUN, SIGNAL_NAME
from pgflowd.cli.terminal.task_view import receiver
from pgflowd.core.redact import one_line
from pgflowd.core.suggest import nearest
from pgflowd.core.text import short_id
from pgflowd.errors import AccessDenied, NotFound, RunEnded

if TYPE_CHECKING:
    import psycopg

    from pgflowd.core.documents.waits import ListedSignal
    from pgflowd.db.operations import Operation
    from pgflowd.db.signals import SignalReceipt

GIVEN_S = 1.0  # so long the command waits until a task has got the signal
PAUSE_S = 0.02  # between two looks

run_argument = click.argument("run", metavar="RUN", type=RUN)
step_argument = click.argument("step", metavar="STEP", type=APPROVAL_STEP)
note_option = click.option("--note", metavar="TEXT", default="", help="Why; the run gets it.")


@click.command(cls=Command)
@run_argument
@click.argument("name", metavar="NAME", type=SIGNAL_NAME)
@click.argument("payload", metavar="[JSON|-|@FILE]", type=JSON, default="null")
@click.option("--dedup", metavar="KEY", help="Send it once for each key.")
@pass_app
def signal(app: App, run: str, name: str, payload: Any, dedup: str | None) -> None:
    """Send a signal to a run: to the first task that waits for NAME, now or later.

    Its payload is JSON, by default null; - reads it from standard input, @FILE from a file.

    \b
    Example: pgflowd runs signal @last paid '{"amount": 12}'
    """
    from pgflowd.db import operations

    with database(app) as conn:
        run_id = find_run(conn, run)
        _send(app, conn, run_id, operations.signal(run_id, name, payload, None, dedup))


@click.command(cls=Command)
@run_argument
@step_argument
@note_option
@pass_app
def approve(app: App, run: str, step: str, note: str) -> None:
    """Approve STEP of a run, which waits for that.

    \b
    Example: pgflowd runs approve 7f3a9c12 approve --note "looks fine"
    """
    _answer(app, run, step, True, note)


@click.command(cls=Command)
@run_argument
@step_argument
@note_option
@pass_app
def reject(app: App, run: str, step: str, note: str) -> None:
    """Reject STEP of a run, which waits for approval; the step fails.

    \b
    Example: pgflowd runs reject 7f3a9c12 approve --note "wrong address"
    """
    _answer(app, run, step, False, note)


def _answer(app: App, run: str, step: str, is_approved: bool, note: str) -> None:
    from pgflowd.db import operations

    with database(app) as conn:
        run_id = find_run(conn, run)
        answer = operations.answer(run_id, step, is_approved, note, None, None)
        try:
            _send(app, conn, run_id, answer, "approved" if is_approved else "rejected")
        except NotFound:
            known = operations.run_sync(conn, operations.get_with_states(run_id)).steps
            close = nearest(step, known)
            remedy = f"did you mean '{close}'?" if close else f"its steps are {', '.join(known)}"
            message = f"run {short_id(run_id)} has no step '{step}'"
            raise NotFound(message, next=remedy) from None


def _send(
    app: App,
    conn: psycopg.Connection[Any],
    run_id: UUID,
    operation: Operation[SignalReceipt],
    answer: str = "",
) -> None:
    """Send a signal, and print which task got it, or which has the answer."""
    from pgflowd.db import operations

    try:
        sent = operations.run_sync(conn, operation)
    except RunEnded as error:
        error.next = f"`pgflowd runs show {short_id(run_id)}` shows what became of it"
        raise
    try:
        found = _given(conn, sent)
    except AccessDenied:  # a role that starts runs and reads none
        found = None
    if found is None:
        app.print_result(
            f"signal sent to run {short_id(run_id)}", signal_id=sent.signal_id, run_id=str(run_id)
        )
        return
    app.print_result(_became(found, sent, answer), **found.to_json())


def _became(signal: ListedSignal, sent: SignalReceipt, answer: str) -> str:
    """What became of a signal, or of an answer."""
    name, run = one_line(signal.name, 60), f"run {short_id(signal.run_id)}"
    if answer and signal.step_slug:
        return f"{answer} {name} of {run}"
    what = f"{answer} {name} of {run}" if answer else f"signal {name} for {run}"
    was_sent = "" if signal.sent_at == sent.at else "sent before, "
    if signal.step_slug:
        return f"{what}: {was_sent}given to {receiver(signal)}"
    return f"{what}: {was_sent}kept until a task waits for it"


def _given(conn: psycopg.Connection[Any], sent: SignalReceipt) -> ListedSignal | None:
    """The signal, when a task has got it, at once if none waits for it, or a second later."""
    from pgflowd.db.query import execute
    from pgflowd.db.signals import get_signal

    until = time.monotonic() + GIVEN_S
    while True:
        found = execute(conn, get_signal(sent.signal_id))
        if found is None:
            return None
        known, is_awaited = found
        if known.step_slug is not None or not is_awaited or time.monotonic() >= until:
            return known
        time.sleep(PAUSE_S)
