"""
Migrates a database, in one transaction, to the schema that this pgflowd needs.

It takes the lock, reads the state of the database, and then executes the files of a plan. A dry run
does the same and rolls back, so it finds the same errors. Errors name the file they come from.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.sql import Literal

from pgflowd import __version__
from pgflowd.core.documents.daemons import Migrated
from pgflowd.core.redact import one_line
from pgflowd.db.connection import MISSING_OBJECT, translated
from pgflowd.db.query import fetch_value
from pgflowd.db.schema.state import (
    NONE,
    OURS,
    SERVERS,
    Connection,
    Core,
    Migration,
    SqlFile,
    checksum,
    migrations,
    read,
    read_core,
    read_state,
    refuse,
    schema_files,
    unsolvable,
)
from pgflowd.errors import DatabaseError, OutOfReach
from pgflowd.resources import schema_version

BUSY_STATES = {"55P03", "57014", "40P01", "40001"}  # lock timeout, cancelled, deadlock
CONFLICT_STATES = {"42P06", "42P07", "42710", "42723", "2BP01"}  # foreign objects exist


def migrate(
    conn: Connection, to: int | None = None, dry_run: bool = False, *, adopt: bool = False
) -> Migrated:
    """
    Bring an empty or older database to version `to`, or to the newest, in one transaction, with
    pgmq. E307 if functions of schema pgflow are not ours, unless it is to adopt them.
    """
    with conn.transaction() as transaction:
        _apply(conn, session_script())
        with translated(conn):
            state = read_state(conn)
            refuse(next(unsolvable(state), None))
            core = read_core(conn, state)
        if core.changed or not adopt or to is not None:
            refuse(core.problem)
        if to is not None:
            _check_target(to, lowest=state.version or 1)
        target = schema_version() if to is None else to
        by_migrations = state.version is not None or to is not None
        plan = MigrationPlan(state.version, target, by_migrations, state.checksum, core)
        for file in plan.before:
            _apply(conn, file)
        # whether each object is as the last migrate recorded it
        is_repeated = plan.is_applied and fetch_value(conn, read("install/unchanged.sql").text)
        for file in plan.again if is_repeated else plan.after:
            _apply(conn, file)
        if dry_run:
            raise psycopg.Rollback(transaction)
    names = [f"{step.version:04}_{step.name}" for step in plan.migrations]
    adopted, replaced = core.edition if core.to_replace else None, list(core.to_replace)
    return Migrated(
        state.version, plan.target, names, adopted, replaced, dry_run, bool(is_repeated)
    )


def sql(from_: int | None = None) -> str:
    """
    Return the SQL for another migration tool: everything, or the part after a version.

    It is plain SQL for one transaction, whose settings are as before at its end.
    """
    if from_ is not None:
        _check_target(from_, lowest=0)
    start = from_ or None
    plan = MigrationPlan(start, schema_version(), by_migrations=from_ is not None)
    guard = read("install/guard.sql", **{"from": "null::int" if start is None else str(start)})
    keep, restore = read("install/keep_settings.sql"), read("install/restore_settings.sql")
    files = [keep, session_script(), guard, *plan.before, *plan.after, restore]
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
    parts = {name: read(f"install/{name}.sql").text for name in ("fingerprint", "grants")}
    return read("roles.sql", **parts).text


def _check_target(version: int, lowest: int) -> None:
    if not lowest <= version <= schema_version():
        raise OutOfReach(
            f"schema version {version} is out of reach; it must be {lowest} to {schema_version()}",
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


@dataclass(frozen=True)
class MigrationPlan:
    """
    The versions before and after, and the core that was there; its files are in order.

    An empty database gets the tables of today at once; an older one, or an empty one with an older
    target, gets the migrations. All other objects are applied every time, unless the target is
    older than the newest version, because the functions of today need the newest tables. Where the
    last migrate has applied these very files, and nothing has changed since, `again` does what no
    fingerprint shows: owners, rights, triggers of queues.
    """

    start: int | None
    target: int
    by_migrations: bool
    old_checksum: str | None = None
    core: Core = NONE

    @property
    def migrations(self) -> list[Migration]:
        """The migrations to record."""
        start = self.start or 0
        return [step for step in migrations() if start < step.version <= self.target]

    @property
    def is_whole(self) -> bool:
        """Whether its target is the newest version, so that it includes the functions."""
        return self.target == schema_version()

    @property
    def is_applied(self) -> bool:
        """Whether the last migrate has applied the same files."""
        is_newest = self.start == self.target == schema_version()
        is_ours = not self.core.to_replace
        return is_newest and is_ours and self.old_checksum == checksum(schema_files())

    @property
    def before(self) -> list[SqlFile]:
        """What comes before all objects, also what brings the tables of an adopted core to ours."""
        files = [pgmq_script(), read("install/before.sql", fingerprint=_fingerprint())]
        if self.core.to_replace:
            names = ", ".join(map(literal, self.core.to_replace))
            files.append(read("install/adopt.sql", functions=f"array[{names}]"))
            if self.core.edition != OURS:
                files.append(read(f"adopt/{str(self.core.edition).replace(' ', '-')}.sql"))
        return files

    @property
    def after(self) -> list[SqlFile]:
        """The objects, and what comes after them."""
        files, steps = schema_files(), self.migrations
        whole = checksum(files) if self.is_whole else self.old_checksum
        told = [{name: getattr(step, name) for name in _RECORDED} for step in steps]
        record = read(
            "install/record.sql",
            fingerprint=_fingerprint(),
            steps=literal(json.dumps(told)),
            version=str(self.target),
            checksum=literal(whole or "none"),
            release=literal(__version__),
        )
        if self.by_migrations:
            first = next((at for at, file in enumerate(files) if file.is_table), len(files))
            late = [file for file in files[first:] if self.is_whole and not file.is_table]
            files = [*files[:first], *(step.file for step in steps), *late]
        sweep = [read("install/sweep.sql")] if self.is_whole else []
        return [*files, *sweep, read("install/owners.sql"), record, *self._finish()]

    @property
    def again(self) -> list[SqlFile]:
        """What a repeated migrate does."""
        repeat = read("install/repeat.sql", release=literal(__version__))
        return [read("install/owners.sql"), repeat, *self._finish()]

    def _finish(self) -> list[SqlFile]:
        names = ["trusted", "finish", "grants"] if self.is_whole else []
        if self.core.to_replace:
            names.append("adopted")
        if self.is_whole and self.start is None:
            names.append("cron")
        return [read(f"install/{name}.sql") for name in names]


_RECORDED = ("version", "name", "checksum")  # of a migration


def _fingerprint() -> str:
    return read("install/fingerprint.sql").text


def literal(text: str) -> str:
    """Return the text as an SQL literal."""
    return Literal(text).as_string(None)


def pgmq_script() -> SqlFile:
    """
    Return the statement that installs pgmq, which provides the queues, if it is missing.

    `sql/install/pgmq.sql` prefers the extension of the server when it is executed. The SQL of the
    Python package `pgmq` is its alternative.
    """
    template = read("install/pgmq.sql")
    version, shipped = shipped_pgmq()
    if "$pgmq$" in shipped or "$pgflowd$" in shipped:
        raise ValueError("the package pgmq uses our dollar quotes; choose others in pgmq.sql")
    text = template.text.replace("<shipped>", shipped).replace("<version>", version)
    return SqlFile(template.path, text)


def shipped_pgmq() -> tuple[str, str]:
    """Return version and SQL of the package `pgmq`; two empty texts if it is not installed."""
    # the package is not imported, because that is slow
    spec = importlib.util.find_spec("pgmq")
    if spec is None or spec.origin is None:
        return "", ""
    directory = Path(spec.origin).parent / "sql"
    if not (directory / "pgmq.sql").is_file():
        return "", ""
    version = (directory / "VERSION").read_text(encoding="utf-8").strip()
    return version, (directory / "pgmq.sql").read_text(encoding="utf-8")
