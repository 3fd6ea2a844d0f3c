"""
`pgflowd runs reschedule`, and the options of `runs start` that say when a run begins and ends, and
after which others.

A run that has not begun is started by a sweeper; the commands need the database and no daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import find_runs
from pgflowd.cli.params import (
    DURATION,
    LABEL,
    MOMENT,
    MOMENT_OR_DURATION,
    REASON_OPTION,
    RUN,
)
from pgflowd.cli.problems import for_each
from pgflowd.core.wishes import AFTER_MODES, CONFLICTS

if TYPE_CHECKING:
    import psycopg

    from pgflowd.core.wishes import Wishes

F = TypeVar("F", bound=Callable[..., Any])

label_option = click.option(
    "--label", "labels", type=LABEL, metavar="K=V", multiple=True, help="A label; may be repeated."
)


def time_options(command: F) -> F:
    """When a run begins, and when it expires."""
    for option in (
        click.option("--expires", type=MOMENT_OR_DURATION, metavar="T|DUR",
                     help="End it then, wherever it is."),
        click.option("--delay", type=DURATION, metavar="DUR", help="Begin it after this time."),
        click.option("--at", type=MOMENT, metavar="T", help="Begin it then: 2026-12-31T08:00."),
    ):  # fmt: skip
        command = option(command)
    return command


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


@click.command(cls=Command)
@click.argument("run", metavar="RUN...", type=RUN, nargs=-1, required=True)
@click.option(
    "--after",
    type=RUN,
    metavar="RUN",
    multiple=True,
    help="Begin it when RUN has ended, instead of what it waits for; may be repeated.",
)
@click.option("--singleton", metavar="KEY", help="Its singleton key instead; none with ''.")
@time_options
@REASON_OPTION
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
    from pgflowd.core.wishes import begins_at, changed, expires_at
    from pgflowd.db import operations

    if (at, delay, expires, singleton) == (None,) * 4 and not after:
        raise click.UsageError("say what: --at, --delay, --expires, --after or --singleton")
    begins, ends = begins_at(at, delay), expires_at(expires)
    with database(app) as conn:
        others = find_runs(conn, after) or None
        wanted = changed(begins, ends, others, None, singleton)

        def change(run_id: UUID) -> tuple[str, dict[str, Any]]:
            operation = operations.reschedule(run_id, wanted, reason, None)
            return f"run {run_id} rescheduled", operations.run_sync(conn, operation).to_json()

        for_each(app, "runs", find_runs(conn, run), change)
