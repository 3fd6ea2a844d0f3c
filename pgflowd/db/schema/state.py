"""
Reads the state of a database, and decides whether pgflowd can work with it.

The catalog shows which release of schema `pgflow` it has (`sql/install/core.sql`);
`pgflowd.schema_history` has the version of pgflowd's own schema. `db status`, the start of the
daemon and `migrate` use the same checks: a missing or older schema (E302) needs a migrate, a newer
one (E303) a newer pgflowd, and a schema `pgflow` of an unknown release (E307) is not changed. Only
reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from pgflowd.db.connection import translated
from pgflowd.db.schema.files import OWN, SERVERS, checksum, read, schema_files
from pgflowd.errors import DatabaseError, Problem
from pgflowd.resources import schema_version

Connection = psycopg.Connection[Any]
NO_CORE = "none"
UNKNOWN_CORE = "unknown"
_VERSION_UNREADABLE = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.InsufficientPrivilege,
)
OLDEST_PGMQ = (1, 5)
_VERSION = "select max(version) from pgflowd.schema_history where name <> 'functions'"
MIGRATE = "run `pgflowd db migrate`"


@dataclass(frozen=True)
class MigrationRecord:
    """The row of the last migrate in `pgflowd.schema_history`."""

    version: int | None = None
    core: str | None = None
    checksum: str | None = None  # of all schema files together
    release: str | None = None
    server: int | None = None
    applied_at: datetime | None = None
    applied_by: str | None = None


@dataclass(frozen=True)
class SchemaState:
    """The state of a database: the core found in it, and the record of the last migrate."""

    core: str
    missing: str | None  # the object that an unknown core lacks
    has_strays: bool  # tables in schema pgflowd without its history
    record: MigrationRecord
    server: str
    pgmq: str | None

    @property
    def version(self) -> int | None:
        return self.record.version

    @property
    def server_major(self) -> int:
        """The 18 of "18.4" and of "18beta1"."""
        digits = re.match(r"\d+", self.server)
        return int(digits[0]) if digits else 0

    @property
    def target_core(self) -> str:
        """The core after a migrate: an empty database gets pgflowd's own core."""
        return OWN if self.core == NO_CORE else self.core


def read_state(conn: Connection) -> SchemaState:
    """Read the state. Raises errors of psycopg, for example without permission."""
    with conn.cursor(row_factory=dict_row) as cursor:
        core = _row(cursor.execute(read("install/core.sql").text.encode()))
        about = _row(cursor.execute(read("install/about.sql").text.encode()))
        record = MigrationRecord()
        if about["has_history"]:
            row = _row(cursor.execute(read("install/state.sql").text.encode()))
            record = MigrationRecord(
                **{field.name: row[field.name] for field in fields(MigrationRecord)}
            )
    return SchemaState(
        core=core["core"],
        missing=core["missing"],
        has_strays=about["has_strays"],
        record=record,
        server=about["server"],
        pgmq=about["pgmq"],
    )


def _row(cursor: psycopg.Cursor[dict[str, Any]]) -> dict[str, Any]:
    row = cursor.fetchone()
    assert row is not None
    return row


@dataclass(frozen=True)
class SchemaStatus:
    """The state of a database, and what prevents pgflowd from working with it."""

    state: SchemaState
    needed: int
    problem: Problem | None
    functions_differ: bool  # the version is right, but the functions are from another release


def status(conn: Connection) -> SchemaStatus:
    """Read the state of the database and check it."""
    with translated(conn), conn.transaction():
        conn.execute(read("install/printing.sql").text.encode())
        state = read_state(conn)
    problem = next(_unsolvable(state), None) or next(_solvable(state), None)
    differ = problem is None and state.record.checksum != checksum(schema_files(state.core))
    return SchemaStatus(state, schema_version(), problem, differ)


def require(conn: Connection) -> SchemaState:
    """Return the state of the database; raise DatabaseError if pgflowd cannot work with it."""
    found = status(conn)
    _raise(found.problem)
    return found.state


def refuse_newer(conn: Connection) -> None:
    """Raise E303 for the schema of a later pgflowd; do nothing if its version cannot be read."""
    with translated(conn), suppress(*_VERSION_UNREADABLE):
        row = conn.execute(_VERSION).fetchone()
        _raise(_newer(row[0]) if row else None)


def refuse_to_migrate(state: SchemaState) -> None:
    """Raise if a migrate cannot start from this state."""
    _raise(next(_unsolvable(state), None))


def _raise(problem: Problem | None) -> None:
    if problem:
        raise DatabaseError(problem.text, code=problem.code, next=problem.next)


def _newer(version: int | None) -> Problem | None:
    if version is None or version <= schema_version():
        return None
    text = f"the database is at schema version {version}; this pgflowd supports {schema_version()}"
    return Problem("E303", text, next="upgrade pgflowd")


def _unsolvable(state: SchemaState) -> Iterator[Problem]:
    """Yield the problems that no migrate solves."""
    if state.server_major not in SERVERS:
        needed = f"pgflowd needs {SERVERS[0]} to {SERVERS[-1]}"
        text = f"the server is PostgreSQL {state.server}; {needed}"
        yield Problem("E309", text, next="use a server of a supported version")
    if newer := _newer(state.version):
        yield newer
    if state.core == UNKNOWN_CORE:
        text = f"schema pgflow is not a known release: it has no {state.missing}"
        yield Problem("E307", text, next="upgrade it or pgflowd, or use another database")
    if state.record.core == OWN and state.core not in (OWN, NO_CORE):
        text = "schema pgflow has lost the mark of pgflowd's own core, or was replaced"
        remedy = "if it is the own core, restore its comment, as in sql/schema/pgflow/schema.sql"
        yield Problem("E307", text, next=remedy)
    remedy = "restore both from one backup, or drop both and migrate"
    if state.version is not None and state.core == NO_CORE:
        text = "schema pgflow is gone, but schema pgflowd still exists"
        yield Problem("E302", text, next=remedy)
    if state.version is None and state.core == OWN:
        text = "schema pgflow is pgflowd's own core, but pgflowd.schema_history is gone"
        yield Problem("E302", text, next=remedy)
    if state.version is None and state.has_strays:
        text = "schema pgflowd has tables, but no pgflowd.schema_history"
        yield Problem("E302", text, next=remedy)


def _solvable(state: SchemaState) -> Iterator[Problem]:
    """Yield the problems that a migrate solves, or an update of pgmq."""
    if state.version is None:
        yield Problem("E302", "the database has no schema of pgflowd", next=MIGRATE)
    elif state.version < schema_version():
        needed = f"this pgflowd needs {schema_version()}"
        text = f"the database is at schema version {state.version}; {needed}"
        yield Problem("E302", text, next=MIGRATE)
    if state.record.core != state.core:
        text = f"schema pgflow was release {state.record.core} and is now {state.core}"
        yield Problem("E307", text, next=MIGRATE)
    if state.pgmq is None:
        yield Problem("E304", "schema pgmq is gone", next=MIGRATE)
        return
    version = re.findall(r"\d+", state.pgmq)[:2]
    if version and tuple(map(int, version)) < OLDEST_PGMQ:
        text = f"pgmq is at version {state.pgmq}; 1.5 or later is needed"
        yield Problem("E304", text, next="run `alter extension pgmq update`")
