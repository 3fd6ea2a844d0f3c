"""
Lists the SQL files that make a database, in the order in which they are applied.

`sql/schema/` holds the database as it should look today, one object per file. `sql/migrations/`
gives an older database the tables of today. `sql/schema/order.txt` lists the files that must come
early: schemas, types, and tables after the tables they reference. All other files follow by kind
(types, tables, functions, views, triggers), then by name.

A migration belongs to the schema that its name begins with. `sql/adopt/` has, for each release of
pgflow that can be adopted, what brings its tables to ours, and a fingerprint of each object.

A process reads each file once. The supervisor reads all before its first fork (`read_all`): a child
that it starts after an upgrade on disk has the SQL that belongs to its code.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from itertools import chain

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
