"""
Compares, creates and deletes the flows of the database.

`compare` reports how a flow differs from the code and changes nothing. `deploy` creates a missing
flow, as the role that owns the schema. `delete` removes a flow with all its runs. `script` returns
the SQL of a deployment, to be executed elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import psycopg

from pgflowd.core.definition.shape import Shape, option_differences, shape_differences
from pgflowd.core.redact import one_line
from pgflowd.db import overview, workers
from pgflowd.db.connection import translated
from pgflowd.db.query import Query, execute, only

Connection = psycopg.Connection[Any]
OWNER = "pgflow_owner"


@dataclass(frozen=True)
class Comparison:
    """How a flow of the code differs from the same flow in the database."""

    exists: bool
    shape: list[str] = field(default_factory=list)  # with one of these no worker starts
    options: list[str] = field(default_factory=list)  # here the database's value holds


def compare(conn: Connection, slug: str, shape: Shape) -> Comparison:
    """How the flow in the database differs from this shape."""
    known = execute(conn, overview.flow_shape(slug))
    if known is None:
        return Comparison(exists=False)
    return Comparison(True, shape_differences(shape, known), option_differences(shape, known))


def deploy(conn: Connection, slug: str, shape: Shape) -> bool:
    """Create the flow, its queue and trigger; False if it was there. E306 for another shape."""
    with translated(conn), conn.transaction():
        if _value(conn, _MAY_BE_OWNER):
            conn.execute(f"set local role {OWNER}".encode())
        existed = bool(_value(conn, "select pgflow.flow_exists(%s)", (slug,)))
        workers.define(conn, slug, shape, "create")
        conn.execute(_WATCH, (slug,))
    return not existed


def active_runs(slug: str) -> Query[int]:
    """How many runs of the flow have not ended."""
    return Query("select pgflowd.active_runs(%s)", (slug,), only)


def delete(conn: Connection, slug: str) -> None:
    """Remove the flow, its queue, and all its runs."""
    with translated(conn), conn.transaction():
        conn.execute("select pgflow.delete_flow_and_data(%s)", (slug,))


def script(slug: str, shape: Shape, place: str) -> str:
    """The SQL that deploys the flow, or raises if the database has another shape of it."""
    tag = "$pgflowd$"
    text = json.dumps(shape, indent=1, ensure_ascii=False).replace("'", "''")
    while tag in text:
        tag = f"{tag[:-1]}_$"
    return _SCRIPT.format(slug=slug, shape=text, place=one_line(place), tag=tag)


def _value(conn: Connection, query: str, params: tuple[Any, ...] = ()) -> Any:
    row = conn.execute(query.encode(), params).fetchone()
    return row[0] if row else None


_MAY_BE_OWNER = f"""
select exists (select from pg_catalog.pg_namespace as schema
                 join pg_catalog.pg_roles as role on role.oid = schema.nspowner
                where schema.nspname = 'pgflow' and role.rolname = '{OWNER}'
                  and pg_catalog.pg_has_role(role.oid, 'member'))
"""
_WATCH = "select pgflowd.watch_queue(queue.queue_name) from pgflowd._queues(%s) as queue"
_SCRIPT = """\
-- {slug}, from {place}
do {tag}
declare
  answer jsonb := pgflow.ensure_flow_compiled('{slug}', '{shape}'::jsonb, false);
begin
  if answer ->> 'status' = 'mismatch' then
    raise exception 'flow {slug} has another shape here: %', answer ->> 'differences';
  end if;
  perform pgflowd.watch_queue(queue.queue_name) from pgflowd._queues('{slug}') as queue;
end {tag};"""
