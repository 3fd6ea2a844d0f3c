"""
Queues: what waits in each flow's queue, for those who look without a daemon.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

MOST_COUNTED = 10_000


def waiting(conn: psycopg.Connection[Any]) -> list[tuple[str, int, float | None]]:
    """Return each flow with the messages that are ready, and the age of the oldest."""
    flows = conn.execute(
        "select flow_slug, to_regclass('pgmq.q_' || lower(flow_slug)) is not null"
        "  from pgflow.flows order by flow_slug"
    ).fetchall()
    return [(slug, *_counted(conn, slug)) for slug, has_queue in flows if has_queue]


def _counted(conn: psycopg.Connection[Any], slug: str) -> tuple[int, float | None]:
    query = sql.SQL(
        "select (select count(*) from"
        "          (select from {table} where vt <= now() limit {most}) as ready),"
        "       (select extract(epoch from now() - min(vt))::float8"
        "          from {table} where vt <= now())"
    ).format(table=sql.Identifier("pgmq", f"q_{slug.lower()}"), most=sql.Literal(MOST_COUNTED))
    row = conn.execute(query).fetchone()
    assert row is not None
    return int(row[0]), row[1]
