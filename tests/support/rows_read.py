"""
Counts the rows that a statement reads, with those that its filters remove; never its time.

Sequential scans count each row, index scans each entry, dead ones too. The counters are those of
the transaction, so nested statements of functions count, and other sessions do not.
"""

from __future__ import annotations

from typing import Any

from support.database import Connection

_COUNTED = """
select coalesce(sum(pg_stat_get_xact_tuples_returned(class.oid)), 0)::bigint
  from pg_class as class
  join pg_namespace as schema on schema.oid = class.relnamespace
 where schema.nspname in ('pgflow', 'pgflowd', 'pgmq') and class.relkind in ('r', 'i')
"""
_BY_RELATION = """
select class.relname, pg_stat_get_xact_tuples_returned(class.oid)
  from pg_class as class
  join pg_namespace as schema on schema.oid = class.relnamespace
 where schema.nspname in ('pgflow', 'pgflowd', 'pgmq') and class.relkind in ('r', 'i')
   and pg_stat_get_xact_tuples_returned(class.oid) > 0
"""


def rows_read(conn: Connection, query: str, *params: Any) -> int:
    """Execute the statement, in the transaction of the caller; return how many rows it read."""
    before = _counted(conn)
    conn.execute(query.encode(), params or None).fetchall()
    return _counted(conn) - before


def rows_by_relation(conn: Connection, query: str, *params: Any) -> dict[str, int]:
    """The same, by table and index, to find out why."""
    before = dict(conn.execute(_BY_RELATION).fetchall())
    conn.execute(query.encode(), params or None).fetchall()
    after = dict(conn.execute(_BY_RELATION).fetchall())
    found = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: count for name, count in found.items() if count > 0}


def _counted(conn: Connection) -> int:
    (count,) = conn.execute(_COUNTED).fetchone()
    return int(count)
