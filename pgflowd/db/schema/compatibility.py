"""
Judge: which states of a database we can work with, and what to do about the others.

One table of verdicts serves `db status`, the daemon's start and `migrate`: missing and older
schemas (E302) ask for a migrate, newer ones (E303) for another pgflowd, and a schema `pgflow`
that fits no release we know (E307) is left alone.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from pgflowd.db.connection import translated
from pgflowd.db.schema.files import OWN, SERVERS, checksum, newest_version, read, schema_files
from pgflowd.db.schema.state import NO_CORE, UNKNOWN_CORE, Connection, DatabaseState, read_state
from pgflowd.errors import DatabaseError, Problem

_MAY_NOT_KNOW = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.InsufficientPrivilege,
)
OLDEST_PGMQ = (1, 5)
UPDATE = "run `alter extension pgmq update`"
_VERSION = "select max(version) from pgflowd.schema_history where name <> 'functions'"
MIGRATE = "run `pgflowd db migrate`"


@dataclass(frozen=True)
class Status:
    """How far a database is, and what keeps us from working with it."""

    state: DatabaseState
    needed: int
    problem: Problem | None
    functions_differ: bool  # the version is right, the functions come from another release


def status(conn: Connection) -> Status:
    """Look at the database and judge it."""
    with translated(conn), conn.transaction():
        conn.execute(read("install/printing.sql").text.encode())
        state = read_state(conn)
    problem = _broken(state) or _distance(state)
    differ = problem is None and state.record.checksum != checksum(schema_files(state.core))
    return Status(state, newest_version(), problem, differ)


def require(conn: Connection) -> DatabaseState:
    """Return the state of a database we can work with; raise what is wrong with any other."""
    found = status(conn)
    if found.problem:
        raise _as_error(found.problem)
    return found.state


def refuse_newer(conn: Connection) -> None:
    """Raise E303 for a schema of a later pgflowd. Who may not ask learns it in other ways."""
    with translated(conn), suppress(*_MAY_NOT_KNOW):
        row = conn.execute(_VERSION).fetchone()
        if row is not None and (problem := _newer_than_ours(row[0])):
            raise _as_error(problem)


def refuse_to_migrate(state: DatabaseState) -> None:
    """Raise unless a migrate may go on from here."""
    problem = _broken(state)
    if problem:
        raise _as_error(problem)


def _broken(state: DatabaseState) -> Problem | None:
    """Return what no migrate can mend."""
    checks = (_wrong_server, _newer, _wrong_core, _half)
    return next((problem for check in checks if (problem := check(state))), None)


def _wrong_server(state: DatabaseState) -> Problem | None:
    if state.server_major in SERVERS:
        return None
    return Problem(
        "E309",
        f"the server is PostgreSQL {state.server}, and pgflowd needs {SERVERS[0]} to {SERVERS[-1]}",
        next="use a server of a supported version",
    )


def _newer(state: DatabaseState) -> Problem | None:
    return _newer_than_ours(state.version)


def _newer_than_ours(version: int | None) -> Problem | None:
    if version is None or version <= newest_version():
        return None
    return Problem(
        "E303",
        f"the database is at schema version {version}, and this pgflowd knows {newest_version()}",
        next="upgrade pgflowd",
    )


def _wrong_core(state: DatabaseState) -> Problem | None:
    if state.core == UNKNOWN_CORE:
        return Problem(
            "E307",
            f"schema pgflow is no release we know: it has no {state.missing}",
            next="upgrade it or pgflowd, or use another database",
        )
    if state.record.core == OWN and state.core not in (OWN, NO_CORE):
        return Problem(
            "E307",
            "schema pgflow was ours and has lost our mark, or somebody replaced it",
            next="put back its comment, as in sql/schema/pgflow/schema.sql, if it is ours",
        )
    return None


def _half(state: DatabaseState) -> Problem | None:
    text = None
    if state.version is not None and state.core == NO_CORE:
        text = "schema pgflow is gone, and schema pgflowd is still there"
    elif state.version is None and state.core == OWN:
        text = "schema pgflow is ours, and pgflowd.schema_history is gone"
    elif state.version is None and state.has_strays:
        text = "schema pgflowd holds tables, and no pgflowd.schema_history"
    if text is None:
        return None
    return Problem("E302", text, next="restore both from one backup, or drop both and migrate")


def _distance(state: DatabaseState) -> Problem | None:
    """Return what a migrate will mend."""
    if state.version is None:
        return Problem("E302", "the database has no schema of ours", next=MIGRATE)
    if state.version < newest_version():
        return Problem(
            "E302",
            f"the database is at schema version {state.version}, "
            f"and this pgflowd needs {newest_version()}",
            next=MIGRATE,
        )
    if state.record.core != state.core:
        return Problem(
            "E307",
            f"schema pgflow was release {state.record.core} and is {state.core} now",
            next=MIGRATE,
        )
    return _wrong_pgmq(state)


def _wrong_pgmq(state: DatabaseState) -> Problem | None:
    if state.pgmq is None:
        return Problem("E304", "schema pgmq is gone", next=MIGRATE)
    numbers = re.findall(r"\d+", state.pgmq)[:2]
    if numbers and tuple(map(int, numbers)) < OLDEST_PGMQ:
        return Problem("E304", f"pgmq is at version {state.pgmq}, before 1.5", next=UPDATE)
    return None


def _as_error(problem: Problem) -> DatabaseError:
    return DatabaseError(problem.text, code=problem.code, next=problem.next, place=problem.place)
