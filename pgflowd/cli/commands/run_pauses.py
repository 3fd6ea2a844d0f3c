"""
`pgflowd runs pause` and `resume`: let no task of a run begin for a while.

They need the database and no daemon: what runs ends normally, and claims pass over the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import find_runs
from pgflowd.cli.params import REASON_OPTION, RUN
from pgflowd.cli.problems import for_each

runs_argument = click.argument("run", metavar="RUN...", type=RUN, nargs=-1, required=True)


@click.command(cls=Command)
@runs_argument
@REASON_OPTION
@pass_app
def pause(app: App, run: Sequence[str], reason: str | None) -> None:
    """Pause runs: none of their tasks begins, and their timers stand still.

    Running tasks end normally. A run expires all the same.

    \b
    Example: pgflowd runs pause 7f3a9c12 --reason "the supplier is down"
    """
    from pgflowd.db import operations

    with database(app) as conn:

        def change(run_id: UUID) -> tuple[str, dict[str, Any]]:
            operation = operations.pause(run_id, reason, None)
            return f"run {run_id} paused", operations.run_sync(conn, operation).to_json()

        for_each(app, "runs", find_runs(conn, run), change)


@click.command(cls=Command)
@runs_argument
@REASON_OPTION
@pass_app
def resume(app: App, run: Sequence[str], reason: str | None) -> None:
    """Let paused runs go on.

    \b
    Example: pgflowd runs resume 7f3a9c12
    """
    from pgflowd.db import operations

    with database(app) as conn:

        def change(run_id: UUID) -> tuple[str, dict[str, Any]]:
            resumed = operations.run_sync(conn, operations.resume(run_id, reason, None))
            became = f"is {resumed.status} already" if resumed.has_ended else "resumed"
            return f"run {run_id} {became}", resumed.to_json()

        for_each(app, "runs", find_runs(conn, run), change)
