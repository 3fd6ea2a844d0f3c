"""
Help for tests of the schema: looking at a database's catalog.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import psycopg

from pgflowd.db.schema.files import read

Connection: TypeAlias = psycopg.Connection[Any]
As: TypeAlias = Callable[[str], Connection]


def catalog(conn: Connection) -> dict[str, str]:
    """Return the fingerprint of everything in pgflow and pgflowd."""
    with conn.transaction():
        conn.execute(read("install/printing.sql").text.encode())
        return dict(conn.execute(read("install/fingerprint.sql").text.encode()).fetchall())


def schemas(conn: Connection) -> set[str]:
    """Return which of the three schemas there are."""
    query = "select nspname from pg_namespace where nspname in ('pgflow', 'pgflowd', 'pgmq')"
    return {name for (name,) in conn.execute(query)}
