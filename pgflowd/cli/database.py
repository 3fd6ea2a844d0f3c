"""
Opens the database for a command, within the limits of the settings, reads it, and finds what the
words of a command name.

RUN is an id, its last digits, `@last`, or `@last:FLOW`; TASK is `RUN/STEP#INDEX`. psycopg is
imported on first use, so `--help` does not load it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from pgflowd import db
from pgflowd.cli.app import App
from pgflowd.core import lookup
from pgflowd.core.documents import TaskKey
from pgflowd.errors import AccessDenied, UnknownFlow

if TYPE_CHECKING:
    import psycopg

    from pgflowd.db.operations import Operation
    from pgflowd.db.query import Query

A = TypeVar("A")

_TASK = re.compile(r"(?P<run>[^/]+)/(?P<step>[A-Za-z_]\w*)#(?P<index>\d{1,9})")


@contextmanager
def database(
    app: App, *, listening: bool = False, any_schema: bool = False
) -> Iterator[psycopg.Connection[Any]]:
    """Open a connection; `listening` avoids a pooler.

    E303 for a schema that is newer than this pgflowd, unless the caller checks that itself
    (`any_schema`).
    """
    with open_connection(app, listening=listening) as conn:
        if not any_schema:
            db.schema.refuse_newer(conn)
        yield conn


def open_connection(app: App, *, listening: bool = False) -> psycopg.Connection[Any]:
    """Open a connection; the caller closes it."""
    from pgflowd.host.config import read

    settings = app.settings.database
    url = app.database_url
    if listening and settings.listen_url and not app.flag_database_url:
        url = read(settings.listen_url, place="[database] listen_url")
    name, limits = f"{app.settings.pgflowd.name} cli", db.connection.limits_of(settings)
    return db.connection.connect(url, name=name, limits=limits)


def reconnector(app: App) -> Callable[[], psycopg.Connection[Any]]:
    """Return a function that opens a new connection for a follower of runs that lost its own."""

    def reconnect() -> psycopg.Connection[Any]:
        app.note("the database does not answer; trying again")
        return open_connection(app, listening=True)

    return reconnect


def execute(conn: psycopg.Connection[Any], query: Query[A]) -> A:
    """What a query finds."""
    return db.query.execute(conn, query)


def perform(conn: psycopg.Connection[Any], operation: Operation[A]) -> A:
    """What an operation returns."""
    return db.performing.run_sync(conn, operation)


def time_of(conn: psycopg.Connection[Any]) -> datetime:
    """The time by the database's clock."""
    return execute(conn, db.query.database_time())


def check_task_word(text: str) -> re.Match[str]:
    """Return the parts of a word for a task. UsageError if it cannot name one."""
    match = _TASK.fullmatch(text)
    if match is None:
        raise click.UsageError(f"'{text}' is not a task: write RUN/STEP#INDEX, such as @last/sum#0")
    lookup.check_run_word(match["run"])
    return match


def find_run(conn: psycopg.Connection[Any], text: str) -> UUID:
    """The id of the run that a word names."""
    return db.run_details.find_run(conn, text)


def find_runs(conn: psycopg.Connection[Any], texts: Iterable[str]) -> list[UUID]:
    """The ids of the runs that words name, each once."""
    return list(dict.fromkeys(find_run(conn, text) for text in texts))


def find_task(conn: psycopg.Connection[Any], text: str) -> TaskKey:
    """The key of the task that a word such as `7f3a9c12/summary#0` names."""
    match = check_task_word(text)
    return TaskKey(find_run(conn, match["run"]), match["step"], int(match["index"]))


def unknown_flow(
    conn: psycopg.Connection[Any], slug: str, otherwise: str | None = None
) -> UnknownFlow:
    """The error about a flow that the database does not have: the nearest slug, or otherwise."""
    return lookup.unknown_flow(slug, db.run_details.flow_slugs(conn), otherwise)


def require_flow(conn: psycopg.Connection[Any], slug: str | None) -> None:
    """Raise UnknownFlow if a flow is named that the database does not have."""
    if slug is not None and slug not in (known := db.run_details.flow_slugs(conn)):
        raise lookup.unknown_flow(slug, known)


def note_idle(app: App, conn: psycopg.Connection[Any], flow: str) -> None:
    """Say why nothing will happen for now, if the flow is paused or no worker serves it."""
    with suppress(AccessDenied):  # a role that starts runs and reads none
        if not note_paused(app, conn, flow) and not execute(conn, db.flows.is_served(flow)):
            app.note(f"no worker serves {flow} now: the run goes on when `pgflowd serve` runs")


def note_paused(app: App, conn: psycopg.Connection[Any], flow: str) -> bool:
    """Say that a flow is paused as a whole; whether it is."""
    found = execute(conn, db.flows.is_paused(flow))
    if found:
        app.note(f"flow {flow} is paused; `pgflowd flows resume {flow}` lets its runs go on")
    return found
