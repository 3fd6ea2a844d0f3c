"""
`pgflowd daemons`: the daemons of all machines, as they have told the database; restart a worker.

They need the database and no daemon here. `cli.terminal.daemon_view` prints daemons.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, TypedDict
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Group
from pgflowd.cli.lookup import find_daemon, find_worker
from pgflowd.cli.params import DAEMON, REASON_OPTION, WORKER
from pgflowd.cli.terminal.daemon_view import print_daemon, print_daemons
from pgflowd.core.documents import Words
from pgflowd.core.documents.daemons import ListedDaemon
from pgflowd.core.text import short_id
from pgflowd.core.verbs import RESTART_WORKER
from pgflowd.errors import AccessDenied


class Daemons(TypedDict):
    daemons: Annotated[Sequence[ListedDaemon], "those of all machines, as the database knows them"]


class RestartedWorker(TypedDict):
    """Exit code 4 for a worker without a process: one that is unknown, has stopped, or sleeps."""

    worker_id: UUID
    result: Annotated[
        str, Words(("restarting", "repeated")), "`repeated` if it was to be replaced already"
    ]


@click.group(cls=Group)
def daemons() -> None:
    """List the daemons of all machines, show one, and restart a worker of any.

    \b
    Example: pgflowd daemons list
    """


@daemons.command("list", prints=Daemons)
@pass_app
def list_(app: App) -> None:
    """List the daemons of all machines; with -v also their processes and problems.

    Each tells how it is as often as it sweeps; in the minute after this command, every two seconds.

    \b
    Example: pgflowd daemons list
    """
    found = _read(app)
    if app.json:
        app.print_document(Daemons(daemons=found))
    elif found:
        print_daemons(app, found)
    else:
        app.note("no daemon has told how it is; `pgflowd serve` starts one")


@daemons.command(prints=ListedDaemon)
@click.argument("daemon", metavar="DAEMON", type=DAEMON)
@pass_app
def show(app: App, daemon: str) -> None:
    """Show what a daemon has told last, as `pgflowd status` shows it on its machine.

    DAEMON is NAME@HOST, a name or host that only one has, an id or its last digits.

    \b
    Example: pgflowd daemons show shop@app2
    """
    daemons = _read(app)
    found = find_daemon(daemons, daemon)
    if app.json:
        app.print_document(found)
    else:
        print_daemon(app, found, daemons)


@daemons.command(prints=RestartedWorker)
@click.argument("worker_word", metavar="WORKER", type=WORKER)
@REASON_OPTION
@pass_app
def restart(app: App, worker_word: str, reason: str | None) -> None:
    """Let a worker of any machine finish its tasks, and be replaced by a new one.

    WORKER is its id, or the last digits; `pgflowd daemons list -v` shows them.

    \b
    Example: pgflowd daemons restart 7f3a9c12 --reason "it takes too much memory"
    """
    from pgflowd.db import operations, performing
    from pgflowd.db.daemons import list_daemons
    from pgflowd.db.query import execute

    with database(app) as conn:
        worker_id = find_worker(lambda: execute(conn, list_daemons()), worker_word)
        operation = operations.perform(RESTART_WORKER, worker_id, reason=reason)
        result = performing.run_sync(conn, operation)
    known = "is to be replaced already"
    does = known if result == "repeated" else "finishes its tasks, and is replaced then"
    text = f"the worker {short_id(worker_id)} {does}"
    app.print_result(text, RestartedWorker(worker_id=worker_id, result=result))


def _read(app: App) -> list[ListedDaemon]:
    """The daemons; and a hint to them that somebody looks, from a role that may give it."""
    from pgflowd.db.daemons import list_daemons, look_at_daemons
    from pgflowd.db.query import execute

    with database(app) as conn:
        with suppress(AccessDenied):
            execute(conn, look_at_daemons())
        return execute(conn, list_daemons())
