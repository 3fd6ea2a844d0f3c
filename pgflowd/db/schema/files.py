"""
Lists the SQL files that make a database, in the order in which they are applied.

`sql/schema/` holds the database as it should look today, one object per file. `sql/migrations/`
gives an older database the tables of today. `sql/schema/order.txt` lists the files that must come
early: schemas, types, and tables after the tables they reference. All other files follow by kind
(types, tables, functions, views, triggers), then by name.

Some files are for some cores only. `pgflowd/own/` needs a schema `pgflow` from pgflowd;
`pgflowd/foreign/any/` and `pgflowd/foreign/<core>/` adapt pgflowd to one that another tool
installed. On a foreign core no file of `pgflow/` is applied. A migration belongs to the schema
that its name begins with.

A process reads each file once. The supervisor reads all before its first fork (`read_all`): a child
that it starts after an upgrade on disk has the SQL that belongs to its code.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache

from pgflowd.resources import shipped

OWN = "own"
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

    def suits(self, core: str) -> bool:
        """Whether it is for this core: a foreign schema pgflow is never changed."""
        return core == OWN or self.name.startswith("pgflowd_")


def read(path: str, **values: str) -> SqlFile:
    """Return the file with this path below `sql/`; each `<name>` in it becomes its value."""
    text = _text(path)
    for name, value in values.items():
        text = text.replace(f"<{name}>", value)
    return SqlFile(path, text)


def schema_files(core: str) -> list[SqlFile]:
    """Return the files that make the objects of this core, in the order of applying."""
    found = {path.removeprefix("schema/") for path in _paths() if path.startswith("schema/")}
    listed = [line for line in _lines("schema/order.txt") if _suits(line, core)]
    others = sorted((path for path in found - set(listed) if _suits(path, core)), key=_rank)
    plans = read("install/plans.sql", core=f"'{core}'")
    return [*(read(f"schema/{path}") for path in (*listed, *others)), plans]


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


def _suits(path: str, core: str) -> bool:
    parts = path.split("/")
    if parts[0] == "pgflow":
        return core == OWN
    if parts[1] == "own":
        return core == OWN
    if parts[1] == "foreign":
        return core != OWN and parts[2] in ("any", core)
    return True


def _rank(path: str) -> tuple[int, str]:
    kind = path.split("/")[-2]
    if kind not in KINDS:
        raise ValueError(f"sql/schema/{path} is not in a directory named {', '.join(KINDS)}")
    return KINDS.index(kind), path
