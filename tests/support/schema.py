"""Reads the catalog of a database, for tests of the schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pgflowd.db.schema.state import migrations, read
from support.database import Connection

As: TypeAlias = Callable[[str], Connection]

MIGRATIONS = [f"{each.version:04}_{each.name}" for each in migrations()]


def catalog(conn: Connection) -> dict[str, str]:
    """Return the fingerprint of everything in pgflow and pgflowd."""
    with conn.transaction():
        conn.execute(read("install/printing.sql").text.encode())
        return dict(conn.execute(read("install/fingerprint.sql").text.encode()).fetchall())


def schemas(conn: Connection) -> set[str]:
    """Return which of the three schemas there are."""
    query = "select nspname from pg_namespace where nspname in ('pgflow', 'pgflowd', 'pgmq')"
    return {name for (name,) in conn.execute(query)}
