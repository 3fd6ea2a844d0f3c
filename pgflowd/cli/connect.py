"""
Opens the database for a command, and finds the runs, flows and tasks that its words name.

RUN is an id, its last digits, or `@last`; TASK is `RUN/STEP#INDEX`. An unknown name raises
E409 or E415, with the nearest known name. psycopg is imported on first use, so `--help` does
not load it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pgflowd.cli.app import App
from pgflowd.core.documents.flows import TaskKey
from pgflowd.core.ids import uuid7
from pgflowd.core.suggest import nearest
from pgflowd.core.text import short_id
from pgflowd.errors import AccessDenied, NotFound, UnknownFlow

if TYPE_CHECKING:
    import psycopg

LAST = "@last"
_DIGITS = re.compile(r"[0-9a-f-]{1,36}")
_TASK = re.compile(r"(?P<run>[^/]+)/(?P<step>[A-Za-z_]\w*)#(?P<index>\d{1,9})")


@contextmanager
def database(
    app: App, *, listening: bool = False, any_schema: bool = False
) -> Iterator[psycopg.Connection[Any]]:
    """Open a connection with the limits of the settings; `listening` avoids a pooler.

    E303 for a schema that is newer than this pgflowd, unless the caller checks that itself
    (`any_schema`).
    """
    from pgflowd.db import schema

    with open_connection(app, listening=listening) as conn:
        if not any_schema:
            schema.refuse_newer(conn)
        yield conn


def reconnector(app: App) -> Callable[[], psycopg.Connection[Any]]:
    """Return what a follower of runs calls for a new connection after it lost its own."""

    def reconnect() -> psycopg.Connection[Any]:
        app.note("the database does not answer; trying again")
        return open_connection(app, listening=True)

    return reconnect


def open_connection(app: App, *, listening: bool = False) -> psycopg.Connection[Any]:
    """Open a connection; the caller closes it."""
    from pgflowd.db.connection import connect, limits_of
    from pgflowd.host.config_refs import read

    settings = app.settings.database
    url = app.database_url
    if listening and settings.listen_url and not app.flag_database_url:
        url = read(settings.listen_url, place="[database] listen_url")
    name = f"{app.settings.pgflowd.name} cli"
    return connect(url, name=name, limits=limits_of(settings))


def new_run_id() -> UUID:
    """A new id; it begins with the time."""
    return uuid7(time.time_ns() // 1_000_000, os.urandom(10))


def check_run_word(text: str) -> None:
    """Raise UsageError for a word that cannot name a run."""
    if not (_uuid(text) or text == LAST or _DIGITS.fullmatch(_digits(text))):
        raise click.UsageError(f"'{text}' is not a run: give an id, its last digits, or {LAST}")


def check_task_word(text: str) -> None:
    """Raise UsageError for a word that cannot name a task."""
    match = _TASK.fullmatch(text)
    if match is None:
        raise click.UsageError(f"'{text}' is not a task: write RUN/STEP#INDEX, such as @last/sum#0")
    check_run_word(match["run"])


def find_run(conn: psycopg.Connection[Any], text: str) -> UUID:
    """The id of the run that a word names."""
    from pgflowd.db.query import execute
    from pgflowd.db.runs import find_runs

    if whole := _uuid(text):
        return whole
    if text == LAST:
        found = execute(conn, find_runs("", 1))
        if not found:
            raise NotFound("there are no runs", next="start one with `pgflowd runs start FLOW`")
        return found[0][0]
    check_run_word(text)
    found = execute(conn, find_runs(_digits(text).replace("-", ""), 3))
    if not found:
        raise NotFound(f"there is no run {text}", next="see `pgflowd runs list`")
    if len(found) > 1:
        ids = ", ".join(str(run_id) for run_id, _ in found)
        raise click.UsageError(f"'{text}' fits more than one run: {ids}; give more digits")
    return found[0][0]


def find_runs(conn: psycopg.Connection[Any], texts: Iterable[str]) -> list[UUID]:
    """The ids of the runs that words name, each once."""
    return list(dict.fromkeys(find_run(conn, text) for text in texts))


def find_task(conn: psycopg.Connection[Any], text: str) -> TaskKey:
    """The key of the task that a word such as `7f3a9c12/summary#0` names."""
    check_task_word(text)
    match = _TASK.fullmatch(text)
    assert match is not None
    return TaskKey(find_run(conn, match["run"]), match["step"], int(match["index"]))


def task_name(run_id: UUID, step: str, index: int) -> str:
    return f"{short_id(run_id)}/{step}#{index}"


@contextmanager
def suggesting_flows(conn: psycopg.Connection[Any], slug: str) -> Iterator[None]:
    """Add the nearest slug to the error about an unknown flow."""
    try:
        yield
    except UnknownFlow as error:
        raise unknown_flow(slug, flow_slugs(conn)) from error


def unknown_flow(slug: str, known: Iterable[str], otherwise: str | None = None) -> UnknownFlow:
    close = nearest(slug, known)
    otherwise = otherwise or f"run `pgflowd flows deploy {slug}`"
    remedy = f"did you mean '{close}'?" if close else otherwise
    return UnknownFlow(f"there is no flow '{slug}' in the database", next=remedy)


def flow_slugs(conn: psycopg.Connection[Any]) -> list[str]:
    """The slugs of all flows in the database; none if the role may not read them."""
    from pgflowd.db.flows import list_flows
    from pgflowd.db.query import execute

    try:
        return [flow.flow_slug for flow in execute(conn, list_flows())]
    except AccessDenied:
        return []


def suggestions(
    ask: Callable[[psycopg.Connection[Any]], list[str]], ctx: click.Context
) -> list[str]:
    """Words from the database that a shell may suggest; none if it does not answer soon."""
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
            return ask(conn)
    except Exception:
        return []


def _digits(text: str) -> str:
    return text.lower().removeprefix("…")


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
