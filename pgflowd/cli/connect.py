"""
Opens the database for a command, within the limits of the settings.

psycopg is imported on first use, so `--help` does not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pgflowd.cli.app import App

if TYPE_CHECKING:
    import psycopg


@contextmanager
def database(
    app: App, *, listening: bool = False, any_schema: bool = False
) -> Iterator[psycopg.Connection[Any]]:
    """Open a connection; `listening` avoids a pooler.

    E303 for a schema that is newer than this pgflowd, unless the caller checks that itself
    (`any_schema`).
    """
    from pgflowd.db import schema

    with open_connection(app, listening=listening) as conn:
        if not any_schema:
            schema.refuse_newer(conn)
        yield conn


def reconnector(app: App) -> Callable[[], psycopg.Connection[Any]]:
    """Return a function that opens a new connection for a follower of runs that lost its own."""

    def reconnect() -> psycopg.Connection[Any]:
        app.note("the database does not answer; trying again")
        return open_connection(app, listening=True)

    return reconnect


def open_connection(app: App, *, listening: bool = False) -> psycopg.Connection[Any]:
    """Open a connection; the caller closes it."""
    from pgflowd.db.connection import connect, limits_of
    from pgflowd.host.config import read

    settings = app.settings.database
    url = app.database_url
    if listening and settings.listen_url and not app.flag_database_url:
        url = read(settings.listen_url, place="[database] listen_url")
    name = f"{app.settings.pgflowd.name} cli"
    return connect(url, name=name, limits=limits_of(settings))


def suggestions(
    query: Callable[[psycopg.Connection[Any]], list[str]], ctx: click.Context
) -> list[str]:
    """Words from the database that a shell may suggest; none if it does not answer soon. What has
    control characters, as names of signals may, would tear the list and reach the terminal."""
    from pgflowd.db.connection import Limits, connect

    app = ctx.find_object(App) or App()
    for param in ("config", "flag_database_url", "instance"):
        given = ctx.params.get(param)
        if given and not getattr(app, param):
            setattr(app, param, given)
    app.quiet = True
    try:
        limits = Limits(connect_s=2.0, statement_s=1.0, lock_s=1.0)
        with connect(app.database_url, name="pgflowd completion", limits=limits) as conn:
            return [line for line in query(conn) if line.isprintable()]
    except Exception:
        return []
