"""
Reads the state of a database: its core, schema version, pgmq and server.

The catalog shows which release of schema `pgflow` it has (`sql/install/core.sql`);
`pgflowd.schema_history` has the version of pgflowd's own schema. Only reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from pgflowd.db.schema.files import OWN, read

Connection = psycopg.Connection[Any]
NO_CORE = "none"
UNKNOWN_CORE = "unknown"


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
