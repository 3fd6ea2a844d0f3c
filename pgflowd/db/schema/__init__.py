"""
Schema: brings a database to the schema this pgflowd needs, and tells how far it is.
"""

from __future__ import annotations

from typing import Any

import psycopg

from pgflowd.db.schema.files import OWN, SqlFile, read, schema_files
from pgflowd.db.schema.pgmq import pgmq_script

Connection = psycopg.Connection[Any]


def install(conn: Connection) -> None:
    """Bring an empty database to the present schema, pgmq included, in one transaction."""
    with conn.transaction():
        for file in (read("install/session.sql"), pgmq_script(), *schema_files(OWN)):
            _run(conn, file)


def _run(conn: Connection, file: SqlFile) -> None:
    try:
        conn.execute(file.text.encode())
    except psycopg.Error as error:
        error.add_note(f"in sql/{file.path}")
        raise
