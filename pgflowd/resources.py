"""
Finds the directories that are shipped with the code: `sql/`, `config/`, `systemd/`, `monitoring/`
and `docs/`.

In a checkout and an editable install they are next to the package, at the top of the project. In a
wheel they are inside it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """Return the directory `name`: "sql", "config", "systemd", "monitoring" or "docs"."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


@cache
def schema_version() -> int:
    """Return the version of the schema that belongs to this code: that of its newest migration."""
    return max(int(path.name[:4]) for path in (shipped("sql") / "migrations").glob("*.sql"))
