"""
Scratch databases for the contract tests: made with the whole schema, or copied from one.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pgmq
import psycopg
from psycopg import conninfo

SCHEMA = Path(__file__).parents[2] / "sql" / "schema"
ADMIN = os.environ.get("D_ADMIN", "host=127.0.0.1 port=55416 user=postgres dbname=postgres")


@dataclass(frozen=True)
class Scratch:
    name: str
    admin: str

    @property
    def dsn(self) -> str:
        return conninfo.make_conninfo(self.admin, dbname=self.name)


def create_scratch(template: Scratch | None = None, admin: str = ADMIN) -> Scratch:
    scratch = Scratch(f"d_{uuid.uuid4().hex[:12]}", template.admin if template else admin)
    copied = f" template {template.name}" if template else ""
    with psycopg.connect(scratch.admin, autocommit=True) as conn:
        conn.execute(f"create database {scratch.name}{copied}")
    if template is None:
        with psycopg.connect(scratch.dsn, autocommit=True) as conn:
            install(conn)
    return scratch


def drop_scratch(scratch: Scratch) -> None:
    with psycopg.connect(scratch.admin, autocommit=True) as conn:
        conn.execute(f"drop database if exists {scratch.name} with (force)")


def install(conn: psycopg.Connection[Any]) -> None:
    """By hand, until pgflowd.db.schema is there."""
    conn.execute((Path(pgmq.__file__).parent / "sql" / "pgmq.sql").read_text())
    conn.execute("set check_function_bodies = off")
    conn.execute("create schema if not exists pgflow; create schema if not exists pgflowd")
    conn.execute("revoke usage on schema pgflow from public")
    order = SCHEMA / "order.txt"
    lines = order.read_text().splitlines() if order.exists() else []
    names = [line.split("#")[0].strip() for line in lines]
    listed = [SCHEMA / name for name in names if name and (SCHEMA / name).exists()]
    pending = [*listed, *sorted({p for p in SCHEMA.rglob("*.sql") if "foreign" not in p.parts} - set(listed))]
    while pending:
        failed = []
        for path in pending:
            try:
                conn.execute(path.read_text())
            except psycopg.Error as error:
                failed.append((path, error))
        if len(failed) == len(pending):
            raise failed[0][1]
        pending = [path for path, _ in failed]
