"""
`pgflowd runs prune` and `runs delete`: delete runs that have ended, with all that belongs to them.

They need the database and no daemon. What stays, and why, the SQL decides (pgflowd.prune).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.commands.run_choice import ENDED, Chosen, Done, change_chosen, choosing
from pgflowd.cli.commands.run_plans import label_option
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.lookup import flow_slugs
from pgflowd.cli.params import DURATION, FLOW
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.text import counted, duration

if TYPE_CHECKING:
    import psycopg

NOTED = 10_000  # after so many deleted runs it says how far it is

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def _not_of_prune(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    """`runs delete` has this filter; somebody who tries it here is told."""
    if value is not None:
        text = (
            "prune deletes by age: --keep-failed leaves all but completed runs, and `pgflowd runs"
            " delete --status STATUS --label NAME=VALUE` deletes by status and label"
        )
        raise click.UsageError(text)


@click.command(cls=Command)
@click.option(
    "--older-than", type=DURATION, required=True, metavar="DUR", help="That ended so long ago."
)
@click.option("--flow", type=FLOW, metavar="SLUG", help="Only runs of this flow.")
@label_option
@click.option("--keep-failed", is_flag=True, help="Only runs that completed.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@yes_option
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
    with database(app) as conn:
        if flow and flow not in (known := flow_slugs(conn)):
            raise unknown_flow(flow, known)
        wanted = (older_than, flow, dict(labels), keep_failed)
        if dry_run:
            _print_pruned(app, sum(_parts(conn, *wanted, only_count=True)), dry_run=True)
            return
        if not yes:
            found = sum(_parts(conn, *wanted, only_count=True))
            age = duration(older_than)
            app.confirm(f"delete {counted(found, 'run')} that ended over {age} ago?", yes=False)
        gone = 0
        try:
            for part in _parts(conn, *wanted, only_count=False):
                if (gone + part) // NOTED > gone // NOTED:
                    app.note(f"{counted(gone + part, 'run')} deleted so far")
                gone += part
        except KeyboardInterrupt:
            app.note(f"{counted(gone, 'run')} deleted; the same command goes on")
            raise
        _print_pruned(app, gone, dry_run=False)


@click.command(cls=Command)
@choosing(*ENDED)
@pass_app
def delete(app: App, /, **chosen: Any) -> None:
    """Delete runs that have ended, with all that belongs to them, and their children.

    Filters choose many; `runs prune` deletes old ones.

    \b
    Example: pgflowd runs delete 7f3a9c12
             pgflowd runs delete --flow send_email --status cancelled
    """
    from pgflowd.db import operations

    def change(conn: psycopg.Connection[Any], run_id: UUID) -> Done:
        gone = operations.run_sync(conn, operations.delete(run_id, None))
        more = f", with {counted(gone - 1, 'run')} that it started" if gone > 1 else ""
        return f"run {run_id} deleted{more}", {"run_id": str(run_id), "deleted": gone}

    change_chosen(app, "delete", Chosen(**chosen), ENDED, change, asks_always=True)


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
    from pgflowd.db.pruning import prune_next
    from pgflowd.db.query import execute

    place, is_first = None, True
    while True:
        runs, place = execute(
            conn,
            prune_next(
                older_than_s, flow, place,
                labels=labels, keep_failed=keep_failed, only_count=only_count,
                is_first=is_first,
            ),
        )  # fmt: skip
        yield runs or 0
        is_first = is_first and not runs
        if place is None:
            return


def _print_pruned(app: App, runs: int, *, dry_run: bool) -> None:
    done = "would be deleted" if dry_run else "deleted"
    app.print_result(f"{counted(runs, 'run')} {done}", deleted=runs, dry_run=dry_run)
