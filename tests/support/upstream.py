"""A database with the core of upstream: that which npm's @pgflow/core 0.8.1 carries."""

from __future__ import annotations

from pathlib import Path

from pgflowd.db.schema.migrate import shipped_pgmq
from support.database import Connection

MIGRATIONS = Path(__file__).parents[1] / "npm/node_modules/@pgflow/core/dist/supabase/migrations"
REALTIME = """
    create schema realtime;
    create function realtime.send(payload jsonb, event text, topic text, private boolean)
    returns void language sql as ''
"""


def install_upstream(conn: Connection) -> None:
    files = sorted(MIGRATIONS.glob("*.sql"))
    if not files:
        raise AssertionError("this test needs the npm packages; run `npm ci --prefix tests/npm`")
    conn.execute(shipped_pgmq()[1].encode())
    conn.execute(REALTIME)
    for file in files:
        text = file.read_text().replace('CREATE EXTENSION IF NOT EXISTS "pgmq"', "--")
        conn.execute(text.encode())
