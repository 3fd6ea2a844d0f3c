"""`pgflowd db health`: how large the database is, and what hinders work in it."""

from __future__ import annotations

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.params import LIMIT_OPTION
from pgflowd.cli.terminal.screen import DASH
from pgflowd.core.documents.database import DatabaseCondition
from pgflowd.core.pruning import told_retention
from pgflowd.core.text import ago, size


@click.command(cls=Command)
@LIMIT_OPTION
@pass_app
def health(app: App, limit: int) -> None:
    """Print how large the database and its tables are, and what may hinder work in it.

    `pgflowd doctor` judges it.

    \b
    Example: pgflowd db health
    """
    from pgflowd.db.health import database_health

    with database(app) as conn:
        found = database_health(conn, limit)
    if app.json:
        app.print_document(**found.to_json())
        return
    for name, value in _lines(found):
        for line in app.out.wrapped(value, head=f"{name:<15}", indent=15):
            app.print(line)
    _print_tables(app, found)


def _lines(found: DatabaseCondition) -> list[tuple[str, str]]:
    oldest, kept = found.oldest_transaction, found.kept
    runs = "" if kept.runs is None else f", about {kept.runs:,} runs"
    since = "" if kept.since is None else f", the oldest started {ago(kept.since, found.now)}"
    return [
        ("database", f"{found.name}, PostgreSQL {found.server}"),
        ("size", f"{size(kept.size)}{runs}{since}"),
        ("retention", told_retention(kept)),
        ("connections", f"{found.left_connections} of {found.allowed_connections} are free"),
        ("transactions", f"the oldest: {oldest}, {oldest.since}" if oldest else "none is open"),
        ("notifications", f"their queue is {found.queue_share:.0%} full"),
    ]


def _print_tables(app: App, found: DatabaseCondition) -> None:
    dash = app.out.sign(DASH)
    rows = [
        (
            table.table,
            f"{table.rows:,}",
            size(table.bytes),
            f"{table.dead:,}",
            dash if table.vacuumed_at is None else ago(table.vacuumed_at, found.now),
        )
        for table in found.tables
    ]
    titles = ("TABLE", "ROWS ABOUT", "SIZE", "DEAD", "VACUUMED")
    losing = ("VACUUMED", "DEAD", "ROWS ABOUT")
    app.print_table(titles, rows, right={"ROWS ABOUT", "SIZE", "DEAD"}, losing=losing)
