"""
Lists the SQL files that make a database, in the order in which they are applied; reads the state of
a database, and decides whether pgflowd can work with it.

`sql/schema/` holds the database as it should look today, one object per file. `sql/migrations/`
gives an older database the tables of today. `sql/schema/order.txt` lists the files that must come
early: schemas, types, and tables after the tables they reference. All other files follow by kind
(types, tables, functions, views, triggers), then by name. `sql/adopt/` has, for each release of
pgflow that can be adopted, what brings its tables to ours, and a fingerprint of each object. A
process reads each file once. The supervisor reads all before its first fork (`read_all`): a child
that it starts after an upgrade on disk has the SQL that belongs to its code.

`pgflowd.schema_history` has the version of the schema. `db status`, the start of the daemon and
`migrate` use the same checks: a missing or older schema (E302) needs a migrate, a newer one (E303)
a newer pgflowd. `verify` lists what changed since the last migrate: it compares the catalog with
the fingerprints that migrate recorded, and the recorded migrations with the files. Objects of other
tools are ignored. Only reads.

There is one core, ours. Where pgflow's own migrations have put schema `pgflow`, it must be adopted
(E307): a release that `sql/adopt/` knows is brought to ours. What somebody has changed in it by
hand is named, and nothing is done. If a later migration of pgflow replaces our functions, that is
found by comparing them with what the last migrate recorded (`replaced_functions`); until they are
adopted as well, a sweeper keeps that in a setting, by which claims and starts refuse.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any

import psycopg
from psycopg.rows import dict_row, tuple_row

from pgflowd.db.connection import translated
from pgflowd.errors import DatabaseError, Problem
from pgflowd.resources import schema_version, shipped

SERVERS = range(15, 19)  # the major versions of PostgreSQL that the SQL is tested on
KINDS = ("types", "tables", "functions", "views", "triggers")
_MIGRATION = re.compile(r"(\d{4})_((pgflowd|pgflow)_\w+)\.sql")


@dataclass(frozen=True)
class SqlFile:
    """A file: its path below `sql/`, and its text."""

    path: str
    text: str

    @property
    def is_table(self) -> bool:
        return "/tables/" in self.path


@dataclass(frozen=True)
class Migration:
    """A numbered step from one version of the tables to the next."""

    version: int
    name: str
    file: SqlFile

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.file.text.encode()).hexdigest()


def read(path: str, **values: str) -> SqlFile:
    """Return the file with this path below `sql/`; each `<name>` in it becomes its value."""
    text = _text(path)
    for name, value in values.items():
        text = text.replace(f"<{name}>", value)
    return SqlFile(path, text)


def schema_files() -> list[SqlFile]:
    """Return the files that make the objects, in the order of applying."""
    found = {path.removeprefix("schema/") for path in _paths() if path.startswith("schema/")}
    listed = _lines("schema/order.txt")
    by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for path in sorted(found - set(listed)):
        if (kind := path.split("/")[-2]) not in KINDS:
            raise ValueError(f"sql/schema/{path} is not in a directory named {', '.join(KINDS)}")
        by_kind[kind].append(path)
    paths = [*listed, *chain.from_iterable(by_kind.values())]
    return [*(read(f"schema/{path}") for path in paths), read("install/plans.sql")]


def editions() -> dict[str, dict[str, str]]:
    """Return the releases of pgflow that can be adopted: each object's fingerprint."""
    found = {}
    for path in sorted((shipped("sql") / "adopt").glob("*.txt")):
        lines = _lines(f"adopt/{path.name}")
        found[path.stem.replace("-", " ")] = {
            name: fingerprint for fingerprint, _, name in (line.partition(" ") for line in lines)
        }
    return found


def migrations() -> list[Migration]:
    """Return all migrations, oldest first."""
    found = []
    for path in sorted(path for path in _paths() if path.startswith("migrations/")):
        name = path.removeprefix("migrations/")
        match = _MIGRATION.fullmatch(name)
        if match is None:
            raise ValueError(f"{name} is not named like 0001_pgflow_tables.sql")
        found.append(Migration(int(match[1]), match[2], read(path)))
    return found


def checksum(files: list[SqlFile]) -> str:
    """Return one checksum of many files; it shows whether a function has changed."""
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.path}\0{file.text}\0".encode())
    return whole.hexdigest()


def read_all() -> None:
    """Read every file now; later calls of this process and its forks read none."""
    schema_version()
    for path in (*_paths(), "schema/order.txt"):
        _text(path)


@cache
def _paths() -> frozenset[str]:
    """Return the paths of all SQL files, below `sql/`."""
    root = shipped("sql")
    return frozenset(path.relative_to(root).as_posix() for path in root.rglob("*.sql"))


@cache
def _text(path: str) -> str:
    return (shipped("sql") / path).read_text(encoding="utf-8")


def _lines(path: str) -> list[str]:
    stripped = (line.strip() for line in _text(path).splitlines())
    return [line for line in stripped if line and not line.startswith("#")]


Connection = psycopg.Connection[Any]
OWN, UPSTREAM, NO_CORE = "own", "upstream", "none"  # whose schema pgflow is
OURS = "pgflowd's"
MAX_NAMED = 12  # objects that a text names
ADOPT = "run `pgflowd db migrate --adopt`"
_VERSION_UNREADABLE = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.InsufficientPrivilege,
)
OLDEST_PGMQ = (1, 5)
_VERSION = "select max(version) from pgflowd.schema_history where name <> 'functions'"
_REPLACED = "select value from pgflowd.settings where name = 'replaced_functions'"
MIGRATE = "run `pgflowd db migrate`"


@dataclass(frozen=True)
class SchemaState:
    """The state of a database: whose schema pgflow is, and the record of the last migrate."""

    core: str
    server: str
    pgmq: str | None
    has_strays: bool  # tables in schema pgflowd without its history
    replaced: Sequence[str] = ()  # functions of pgflow that a sweeper has found to be others
    version: int | None = None
    checksum: str | None = None  # of all schema files together
    release: str | None = None
    applied_at: datetime | None = None
    applied_by: str | None = None


def read_state(conn: Connection) -> SchemaState:
    """Read the state. Raises errors of psycopg, for example without permission."""
    with conn.cursor(row_factory=dict_row) as cursor:

        def row(query: str) -> dict[str, Any]:
            return cursor.execute(query.encode()).fetchone() or {}

        found = row(read("install/core.sql").text) | row(read("install/about.sql").text)
        has_history, has_settings = found.pop("has_history"), found.pop("has_settings")
        if has_history:
            found |= row(read("install/state.sql").text)
        if has_history and has_settings:
            found["replaced"] = row(_REPLACED).get("value") or ()
    return SchemaState(**found)


@dataclass(frozen=True)
class Core:
    """Schema pgflow as it is: its edition, and what in it is not as that edition has it."""

    edition: str | None  # as `db status` names it; None: there is no schema pgflow
    to_replace: tuple[str, ...] = ()  # functions that are not ours; an adoption replaces them
    changed: tuple[str, ...] = ()  # what somebody has changed, and no adoption replaces

    @property
    def problem(self) -> Problem | None:
        """Why pgflowd cannot work with it."""
        if self.changed:
            text = (
                f"schema pgflow was changed by hand: {_named(self.changed)} differ from those of"
                f" {self.edition}, the closest release that pgflowd knows"
            )
            return Problem("E307", text, next="change them back, or use another database")
        return replaced_problem(self.to_replace) if self.to_replace else None


NONE = Core(None)


def read_core(conn: Connection, state: SchemaState) -> Core:
    """Compare schema pgflow with its edition. The session prints as `printing.sql` says."""
    if state.core == UPSTREAM:
        return _closest_edition(pairs(conn, "install/fingerprint.sql"))
    if state.core != OWN or state.version is None:
        return NONE
    replaced = _differing_functions(conn)
    if not replaced:
        return Core(OURS)
    known, present = pairs(conn, "install/known.sql"), pairs(conn, "install/fingerprint.sql")
    changed = [
        name
        for name in sorted(known)
        if name.partition(" ")[2].startswith("pgflow.")
        and not name.startswith("function ")
        and present.get(name) != known[name]
    ]
    return Core(OURS, tuple(replaced), tuple(changed))


def replaced_functions(conn: Connection) -> list[str]:
    """Return the functions of schema pgflow that are not as the last migrate left them."""
    with translated(conn), conn.transaction():
        conn.execute(read("install/printing.sql").text.encode())
        return _differing_functions(conn)


def pairs(conn: Connection, path: str) -> dict[str, str]:
    """Execute a file whose query returns names and values."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        return dict(cursor.execute(read(path).text.encode()).fetchall())


def _differing_functions(conn: Connection) -> list[str]:
    with conn.cursor(row_factory=tuple_row) as cursor:
        fingerprint = read("install/fingerprint.sql").text
        query = read("install/replaced.sql", fingerprint=fingerprint).text
        return [name for (name,) in cursor.execute(query.encode())]


def _closest_edition(catalog: dict[str, str]) -> Core:
    """The known release of pgflow from which the fewest objects differ, and these."""
    present = {
        name: fingerprint[:8]
        for name, fingerprint in catalog.items()
        if name.partition(" ")[2].startswith("pgflow.")
    }
    differing = {
        edition: sorted(one for one in {*known, *present} if known.get(one) != present.get(one))
        for edition, known in editions().items()
    }
    closest = min(differing, key=lambda edition: len(differing[edition]))
    functions = sorted(name for name in present if name.startswith("function "))
    return Core(closest, tuple(functions), tuple(differing[closest]))


def replaced_problem(functions: Sequence[str]) -> Problem:
    names = f": {_named(functions)}" if functions else ""
    text = f"the functions of schema pgflow are not this pgflowd's{names}"
    return Problem("E307", text, next=ADOPT)


def _named(objects: Sequence[str]) -> str:
    """The names of objects, as far as a line has room."""
    more = f" and {len(objects) - MAX_NAMED} more" if len(objects) > MAX_NAMED else ""
    return ", ".join(objects[:MAX_NAMED]) + more


@dataclass(frozen=True)
class SchemaStatus:
    """The state of a database, and what prevents pgflowd from working with it."""

    state: SchemaState
    core: Core
    needed: int
    problem: Problem | None
    functions_differ: bool  # the version is right, but the functions are from another release


def status(conn: Connection) -> SchemaStatus:
    """Read the state of the database and check it."""
    with translated(conn), conn.transaction():
        conn.execute(read("install/printing.sql").text.encode())
        state = read_state(conn)
        core = read_core(conn, state)
    problem = next(unsolvable(state), None) or core.problem or next(_solvable(state), None)
    differ = problem is None and state.checksum != checksum(schema_files())
    return SchemaStatus(state, core, schema_version(), problem, differ)


def require(conn: Connection) -> SchemaState:
    """Return the state of the database; raise DatabaseError if pgflowd cannot work with it."""
    with translated(conn), conn.transaction():
        state = read_state(conn)
    replaced = (
        replaced_problem(state.replaced) if state.replaced or state.core == UPSTREAM else None
    )
    refuse(next(unsolvable(state), None) or replaced or next(_solvable(state), None))
    return state


def refuse_newer(conn: Connection) -> None:
    """Raise E303 for the schema of a later pgflowd; do nothing if its version cannot be read."""
    with translated(conn), suppress(*_VERSION_UNREADABLE):
        row = conn.execute(_VERSION).fetchone()
        refuse(_newer(row[0]) if row else None)


def refuse(problem: Problem | None) -> None:
    if problem:
        raise DatabaseError(problem.text, code=problem.code, next=problem.next)


def _newer(version: int | None) -> Problem | None:
    if version is None or version <= schema_version():
        return None
    text = f"the database is at schema version {version}; this pgflowd supports {schema_version()}"
    return Problem("E303", text, next="upgrade pgflowd")


def unsolvable(state: SchemaState) -> Iterator[Problem]:
    """Yield the problems that no migrate solves."""
    major = re.match(r"\d+", state.server)  # the 18 of "18.4" and of "18beta1"
    if major is None or int(major[0]) not in SERVERS:
        needed = f"pgflowd needs {SERVERS[0]} to {SERVERS[-1]}"
        text = f"the server is PostgreSQL {state.server}; {needed}"
        yield Problem("E309", text, next="use a server of a supported version")
    if newer := _newer(state.version):
        yield newer
    if state.version is not None and state.core == UPSTREAM:
        text = "schema pgflow has lost the mark of pgflowd, or was replaced"
        remedy = "if it is pgflowd's, restore its comment, as in sql/schema/pgflow/schema.sql"
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
    if state.pgmq is None:
        yield Problem("E304", "schema pgmq is gone", next=MIGRATE)
        return
    version = re.findall(r"\d+", state.pgmq)[:2]
    if version and tuple(map(int, version)) < OLDEST_PGMQ:
        text = f"pgmq is at version {state.pgmq}; 1.5 or later is needed"
        yield Problem("E304", text, next="run `alter extension pgmq update`")


REPLACED_BY_MIGRATE = ("function", "view", "trigger")  # the other kinds hold data
BY_HAND = "change it back by hand, or restore it; sql/schema has its definition"


def verify(conn: Connection) -> list[Problem]:
    """Return one problem for each object that differs or is missing."""
    with translated(conn), conn.transaction():
        conn.execute(read("install/printing.sql").text.encode())
        require(conn)
        known = pairs(conn, "install/known.sql")
        present = pairs(conn, "install/fingerprint.sql")
        applied = pairs(conn, "install/applied.sql")
    found = []
    for name, fingerprint in sorted(known.items()):
        if present.get(name) != fingerprint:
            kind, _, rest = name.partition(" ")
            is_core = kind == "function" and rest.startswith("pgflow.")
            remedy = MIGRATE if kind in REPLACED_BY_MIGRATE else BY_HAND
            verb = "differs from" if name in present else "is missing since"
            text = f"{name} {verb} the last migrate"
            code, remedy = ("E307", ADOPT) if is_core else ("E302", remedy)
            found.append(Problem(code, text, next=remedy))
    for step in migrations():
        if applied.get(step.name, step.checksum) != step.checksum:
            text = f"migration {step.version:04}_{step.name} was applied with another text"
            remedy = "find the release that applied it; a migration must never change"
            found.append(Problem("E302", text, next=remedy))
    return found
