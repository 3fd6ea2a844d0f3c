"""
Migrates a database, in one transaction, to the schema that this pgflowd needs.

It takes the lock, reads the state of the database, and then executes the plan. A dry run does the
same and rolls back, so it finds the same errors. Errors name the file they come from.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from pgflowd.core.redact import one_line
from pgflowd.db.connection import translated
from pgflowd.db.errors import MISSING_OBJECT
from pgflowd.db.schema.compatibility import refuse_to_migrate
from pgflowd.db.schema.files import OWN, SERVERS, SqlFile, newest_version, read
from pgflowd.db.schema.plan import MigrationPlan
from pgflowd.db.schema.state import Connection, read_state
from pgflowd.errors import DatabaseError, OutOfReach

BUSY_STATES = {"55P03", "57014", "40P01", "40001"}  # lock timeout, cancelled, deadlock
CONFLICT_STATES = {"42P06", "42P07", "42710", "42723", "2BP01"}  # foreign objects exist


@dataclass(frozen=True)
class Migrated:
    """The result of a migrate, or of a dry run."""

    before: int | None
    after: int
    core: str
    migrations: list[str]
    dry_run: bool


def install(conn: Connection) -> None:
    """Bring an empty or older database to the newest schema, pgmq included."""
    migrate(conn)


def migrate(conn: Connection, to: int | None = None, dry_run: bool = False) -> Migrated:
    """Bring the database to version `to`, or to the newest, in one transaction."""
    with conn.transaction() as transaction:
        _apply(conn, session_script())
        with translated(conn):
            state = read_state(conn)
        refuse_to_migrate(state)
        if to is not None:
            _check_target(to, lowest=state.version or 1)
        target = newest_version() if to is None else to
        by_migrations = state.version is not None or to is not None
        last = state.record.checksum
        plan = MigrationPlan(state.target_core, state.version, target, by_migrations, last)
        for file in plan.files:
            _apply(conn, file)
        if dry_run:
            raise psycopg.Rollback(transaction)
    names = [f"{step.version:04}_{step.name}" for step in plan.migrations]
    return Migrated(state.version, plan.target, plan.core, names, dry_run)


def sql(from_: int | None = None) -> str:
    """
    Return the SQL for another migration tool: everything, or the part after a version.

    It is plain SQL for a database with pgflowd's own core, for one transaction.
    """
    if from_ is not None:
        _check_target(from_, lowest=0)
    start = from_ or None
    plan = MigrationPlan(OWN, start, newest_version(), by_migrations=from_ is not None)
    guard = read("install/guard.sql", **{"from": "null::int" if start is None else str(start)})
    files = [session_script(), guard, *plan.files]
    head = "-- Run this in one transaction: psql -1 -v ON_ERROR_STOP=1 -f THIS_FILE\n"
    return head + "".join(f"\n-- {file.path}\n{file.text.rstrip()}\n" for file in files)


def session_script(servers: range = SERVERS) -> SqlFile:
    """Return the start of the transaction: settings, the check of the server, and the lock."""
    return read(
        "install/session.sql",
        printing=read("install/printing.sql").text,
        oldest=str(servers[0]),
        newest=str(servers[-1]),
    )


def roles_sql() -> str:
    """Return the script that creates the roles with their rights; it may be executed again."""
    grants = read("install/grants.sql").text
    return read("roles.sql", grants=grants).text


def _check_target(version: int, lowest: int) -> None:
    if not lowest <= version <= newest_version():
        raise OutOfReach(
            f"schema version {version} is out of reach; it must be {lowest} to {newest_version()}",
            next="see `pgflowd db status` for the present version",
        )


def _apply(conn: Connection, file: SqlFile) -> None:
    try:
        conn.execute(file.text.encode())
    except psycopg.Error as error:
        error.add_note(f"while executing sql/{file.path}")
        text = one_line(error.diag.message_primary or str(error))
        if error.sqlstate in BUSY_STATES:
            remedy = "try again when the database is less busy"
            raise DatabaseError(f"{text}; nothing was changed", next=remedy) from error
        if error.sqlstate in CONFLICT_STATES:
            text += f" ({one_line(error.diag.message_detail or f'in sql/{file.path}')})"
            remedy = "rename or drop that object"
            raise DatabaseError(f"{text}; nothing was changed", next=remedy) from error
        if error.sqlstate in MISSING_OBJECT:  # one of our files is wrong; no migrate helps
            raise
        with translated(conn):
            raise
