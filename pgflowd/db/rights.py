"""
Examines what the role of a connection may do, and which schemas of the hosted platform are trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from pgflowd.core.finding import Finding, error, ok, warning
from pgflowd.db.query import fetch_value

Connection = psycopg.Connection[Any]


def rights(conn: Connection) -> Iterator[Finding]:
    row = conn.execute(_RIGHTS).fetchone()
    assert row is not None
    role, *rights = row
    may = dict(zip(("view", "start", "serve", "deploy"), rights, strict=True))
    if not any(rights):
        text = f"{role} may not {', '.join(may)}"
        yield error("rights", text, f"give {role} a role of `pgflowd db sql roles`", "E305")
        return
    text = f"{role} may {', '.join(name for name, right in may.items() if right)}"
    missing = [name for name, right in may.items() if not right]
    yield ok("rights", f"{text}; not {', '.join(missing)}" if missing else text)


def platform(conn: Connection) -> Iterator[Finding]:
    """Whether realtime, cron, vault and net, where they are, belong to trusted roles."""
    found = conn.execute("select schema_name, owner, untrusted_owner from pgflowd.platform()")
    schemas = found.fetchall()
    for schema, _, untrusted in schemas:
        if untrusted is not None:
            text = (
                f"schema {schema} is not used: {untrusted}, which is not trusted, owns it or a part"
            )
            remedy = (
                "drop it if you do not know it: whoever owns it decides what is executed; else give"
                f" it to a superuser, or run `pgflowd db migrate` as {untrusted}"
            )
            yield warning("platform", text, remedy, "W323")
    trusted = [f"{schema} of {owner}" for schema, owner, untrusted in schemas if untrusted is None]
    if trusted or not schemas:
        yield ok("platform", f"used: {', '.join(trusted)}" if trusted else "a plain PostgreSQL")


def has_trusted_cron(conn: Connection) -> bool:
    """Whether pg_cron is there, and may be asked."""
    return bool(fetch_value(conn, _HAS_TRUSTED_CRON))


_RIGHTS = """
select current_user,
       has_table_privilege('pgflow.runs', 'select'),
       has_function_privilege('pgflow.start_flow_with_states(text, jsonb, uuid)', 'execute'),
       has_table_privilege('pgflow.workers', 'insert')
         and has_table_privilege('pgflowd.attempts', 'insert')
         and has_table_privilege('pgflow.step_tasks', 'update'),
       has_table_privilege('pgflow.flows', 'insert') and has_schema_privilege('pgmq', 'create')
         and (select bool_and(has_schema_privilege(proc.pronamespace, 'usage')
                              and has_function_privilege(proc.oid, 'execute'))
                from pg_catalog.pg_proc as proc
                join pg_catalog.pg_namespace as schema on schema.oid = proc.pronamespace
               where (schema.nspname, proc.proname) in (
                 ('pgflow', 'create_flow'), ('pgflow', 'add_step'),
                 ('pgflow', 'ensure_flow_compiled'), ('pgflowd', 'watch_queue'),
                 ('pgmq', 'create')))
"""
_HAS_TRUSTED_CRON = """
select pg_catalog.to_regclass('cron.job') is not null
       and exists (select from pgflowd.platform()
                    where schema_name = 'cron' and untrusted_owner is null)
"""
