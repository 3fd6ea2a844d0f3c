"""
Decides which states of a database pgflowd can work with, and what to do about the others.

`db status`, the start of the daemon and `migrate` use the same checks: a missing or older schema
(E302) needs a migrate, a newer one (E303) a newer pgflowd, and a schema `pgflow` of an unknown
release (E307) is not changed.
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

_VERSION_UNREADABLE = (
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
    """The state of a database, and what prevents pgflowd from working with it."""

    state: DatabaseState
    needed: int
    problem: Problem | None
    functions_differ: bool  # the version is right, but the functions are from another release


def status(conn: Connection) -> Status:
    """Read the state of the database and check it."""
    with translated(conn), conn.transaction():
        conn.execute(read("install/printing.sql").text.encode())
        state = read_state(conn)
    problem = _broken(state) or _distance(state)
    differ = problem is None and state.record.checksum != checksum(schema_files(state.core))
    return Status(state, newest_version(), problem, differ)


def require(conn: Connection) -> DatabaseState:
    """Return the state of the database; raise DatabaseError if pgflowd cannot work with it."""
    found = status(conn)
    if found.problem:
        raise _as_error(found.problem)
    return found.state


def refuse_newer(conn: Connection) -> None:
    """Raise E303 for the schema of a later pgflowd; do nothing if its version cannot be read."""
    with translated(conn), suppress(*_VERSION_UNREADABLE):
        row = conn.execute(_VERSION).fetchone()
        if row is not None and (problem := _newer(row[0])):
            raise _as_error(problem)


def refuse_to_migrate(state: DatabaseState) -> None:
    """Raise if a migrate cannot start from this state."""
    problem = _broken(state)
    if problem:
        raise _as_error(problem)


def _broken(state: DatabaseState) -> Problem | None:
    """Return the problem that no migrate can solve."""
    return _wrong_server(state) or _newer(state.version) or _wrong_core(state) or _incomplete(state)


def _wrong_server(state: DatabaseState) -> Problem | None:
    if state.server_major in SERVERS:
        return None
    return Problem(
        "E309",
        f"the server is PostgreSQL {state.server}; pgflowd needs {SERVERS[0]} to {SERVERS[-1]}",
        next="use a server of a supported version",
    )


def _newer(version: int | None) -> Problem | None:
    if version is None or version <= newest_version():
        return None
    return Problem(
        "E303",
        f"the database is at schema version {version}; this pgflowd supports {newest_version()}",
        next="upgrade pgflowd",
    )


def _wrong_core(state: DatabaseState) -> Problem | None:
    if state.core == UNKNOWN_CORE:
        return Problem(
            "E307",
            f"schema pgflow is not a known release: it has no {state.missing}",
            next="upgrade it or pgflowd, or use another database",
        )
    if state.record.core == OWN and state.core not in (OWN, NO_CORE):
        return Problem(
            "E307",
            "schema pgflow has lost the mark of pgflowd's own core, or was replaced",
            next="if it is the own core, restore its comment, as in sql/schema/pgflow/schema.sql",
        )
    return None


def _incomplete(state: DatabaseState) -> Problem | None:
    text = None
    if state.version is not None and state.core == NO_CORE:
        text = "schema pgflow is gone, but schema pgflowd still exists"
    elif state.version is None and state.core == OWN:
        text = "schema pgflow is pgflowd's own core, but pgflowd.schema_history is gone"
    elif state.version is None and state.has_strays:
        text = "schema pgflowd has tables, but no pgflowd.schema_history"
    if text is None:
        return None
    return Problem("E302", text, next="restore both from one backup, or drop both and migrate")


def _distance(state: DatabaseState) -> Problem | None:
    """Return the problem that a migrate solves."""
    if state.version is None:
        return Problem("E302", "the database has no schema of pgflowd", next=MIGRATE)
    if state.version < newest_version():
        return Problem(
            "E302",
            f"the database is at schema version {state.version}; "
            f"this pgflowd needs {newest_version()}",
            next=MIGRATE,
        )
    if state.record.core != state.core:
        return Problem(
            "E307",
            f"schema pgflow was release {state.record.core} and is now {state.core}",
            next=MIGRATE,
        )
    return _wrong_pgmq(state)


def _wrong_pgmq(state: DatabaseState) -> Problem | None:
    if state.pgmq is None:
        return Problem("E304", "schema pgmq is gone", next=MIGRATE)
    numbers = re.findall(r"\d+", state.pgmq)[:2]
    if numbers and tuple(map(int, numbers)) < OLDEST_PGMQ:
        return Problem(
            "E304", f"pgmq is at version {state.pgmq}; 1.5 or later is needed", next=UPDATE
        )
    return None


def _as_error(problem: Problem) -> DatabaseError:
    return DatabaseError(problem.text, code=problem.code, next=problem.next, place=problem.place)
