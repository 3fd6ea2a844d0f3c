"""
Hostile strings, which try to inject SQL, terminal sequences or log records.

`texts()` mixes known attacks with texts of hypothesis; `Unharmed` remembers the catalog of a
database, and checks that nothing changed except what the test asked for.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import psycopg
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

ATTACKS = [
    "'; drop table pgflow.runs; --",
    '"; drop schema pgflowd cascade; --',
    "x'); delete from pgflow.step_tasks; --",
    "' or '1'='1",
    "$$; drop table pgflow.flows; $$",
    "$1; drop table pgflow.runs",
    "\\'; drop table pgflow.runs; --",
    "E'\\047; select pg_sleep(9); --",
    "%s %(x)s {} {0} %I %L %1$s",
    "q_send_email; drop table pgmq.q_send_email",
    'send_email"; drop table pgmq.a_send_email; --',
    "a\nb; drop table pgflow.runs",
    "/*", "*/", "--", ";", "'", '"', "\\", "$", "%", "`",
    "pgflow.runs", "__proto__", "../../etc/passwd", "\x1b[2J\x1b]0;owned\x07", "\u202e", "\ufeff",
    "select pg_terminate_backend(pg_backend_pid())",
]  # fmt: skip

_EVERYTHING = """
select 'relation ' || oid::regclass::text || relkind::text from pg_class
 where relnamespace::regnamespace::text in ('pgflow', 'pgflowd', 'pgmq', 'public')
union all select 'function ' || oid::regprocedure::text from pg_proc
 where pronamespace::regnamespace::text in ('pgflow', 'pgflowd', 'pgmq', 'public')
union all select 'flow ' || flow_slug from pgflow.flows
union all select 'step ' || flow_slug || '/' || step_slug from pgflow.steps
union all select 'setting ' || name || value from pgflowd.settings
"""


def texts(**limits: Any) -> st.SearchStrategy[str]:
    """Hostile texts that JSON and PostgreSQL can hold."""
    plain = st.text(st.characters(codec="utf-8", exclude_characters="\0"), **limits)
    attack = st.sampled_from(ATTACKS)
    return st.one_of(attack, plain, st.builds(str.__add__, attack, plain))


def values() -> st.SearchStrategy[Any]:
    """JSON made of hostile texts."""
    leaves = st.one_of(texts(), st.none(), st.booleans(), st.integers(-(10**30), 10**30))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(texts(max_size=30), inner, max_size=4)
        ),
        max_leaves=8,
    )


class Unharmed:
    """The state of a database, except the rows of runs."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn
        self._before = self._look()

    def is_it(self) -> bool:
        """Whether it looks as before."""
        return self._look() == self._before

    def _look(self) -> list[tuple[Any, ...]]:
        return sorted(self._conn.execute(_EVERYTHING).fetchall())


TERMINAL = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202e\u2066\u061cend"  # no column of ours may hold this

_TEXT_COLUMNS = """
select format('%I.%I', col.table_schema, col.table_name), quote_ident(col.column_name),
       col.data_type
  from information_schema.columns as col
  join information_schema.tables as tab using (table_schema, table_name)
 where col.table_schema in ('pgflow', 'pgflowd') and tab.table_type = 'BASE TABLE'
   and col.data_type in ('text', 'jsonb', 'ARRAY') and col.is_generated = 'NEVER'
   and col.table_name <> 'schema_history'
"""


def taint(conn: psycopg.Connection[Any], spared: Container[str] = ()) -> list[str]:
    """
    Put terminal sequences into each text of each table that no constraint protects: also into the
    keys and texts of JSON. Return the columns that have them.
    """
    tainted = []
    for table, column, kind in conn.execute(_TEXT_COLUMNS).fetchall():
        if f"{table}.{column}" in spared:
            continue
        rows = conn.execute(f"select ctid::text, {column} from {table}").fetchall()  # type: ignore[arg-type]
        changed = 0
        for row, (place, value) in enumerate(rows):
            if value is None and kind == "jsonb":
                continue
            new = _tainted(value, row) if kind == "jsonb" else _tainted_text(value, row)
            try:
                with conn.transaction():
                    query = f"update {table} set {column} = %s where ctid = %s::tid"
                    given = Jsonb(new) if kind == "jsonb" else new
                    conn.execute(query, (given, place))  # type: ignore[arg-type]
                changed += 1
            except (psycopg.errors.IntegrityError, psycopg.errors.DataError):
                break
        if changed:
            tainted.append(f"{table}.{column}")
    return tainted


def _tainted_text(value: Any, row: int) -> Any:
    if isinstance(value, list):
        return [f"{TERMINAL}{each}" for each in value]
    return f"{TERMINAL}{row}"


def _tainted(value: Any, row: int) -> Any:
    if isinstance(value, dict):
        return {f"{key}": _tainted(each, row) for key, each in value.items()} | {TERMINAL: TERMINAL}
    if isinstance(value, list):
        return [_tainted(each, row) for each in value]
    return f"{TERMINAL}{row}" if isinstance(value, str) else value
