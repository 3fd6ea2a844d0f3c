"""Reads how large the tables of a database are, and what hinders work in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap

from pgflowd.core.documents.database import DatabaseCondition, TableHealth
from pgflowd.db.obstacles import oldest_transactions, queue_share
from pgflowd.db.pruning import kept
from pgflowd.db.query import Query, SyncConnection, database_time, execute
from pgflowd.db.server_connections import server_connections


def database_health(conn: SyncConnection, most_tables: int) -> DatabaseCondition:
    connections = execute(conn, server_connections(is_ours=False))
    oldest = execute(conn, oldest_transactions(0, 1))
    server, name = execute(conn, _server())
    return DatabaseCondition(
        now=execute(conn, database_time()),
        server=server,
        name=name,
        kept=execute(conn, kept()),
        allowed_connections=connections.allowed,
        left_connections=connections.left,
        oldest_transaction=oldest[0] if oldest else None,
        queue_share=execute(conn, queue_share()),
        tables=execute(conn, _tables(most_tables)),
    )


def _server() -> Query[tuple[str, str]]:
    return Query(_SERVER, (), lambda rows: (rows[0][0], rows[0][1]))


def _tables(most: int) -> Query[Sequence[TableHealth]]:
    return Query(_TABLES, (most,), lambda rows: list(starmap(TableHealth, rows)))


_SERVER = """
select split_part(current_setting('server_version'), ' ', 1), current_database()::text
"""
_TABLES = """
select schemaname || '.' || relname, pg_total_relation_size(relid) as bytes, n_live_tup, n_dead_tup,
       greatest(last_vacuum, last_autovacuum), greatest(last_analyze, last_autoanalyze)
  from pg_catalog.pg_stat_user_tables
 where schemaname in ('pgflow', 'pgflowd') or schemaname = 'pgmq' and relname ~ '^[aq]_'
 order by bytes desc, relname limit %s
"""
