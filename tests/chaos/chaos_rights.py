"""The users of the attacker of the chaos, and the rights that everybody has."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import psycopg

from pgflowd.db import schema

STARTER, WORKER, STRANGER = (
    f"chaos_{os.getpid()}_{name}" for name in ("starter", "worker", "stranger")
)
USERS = {STARTER: "in role pgflow_starter", WORKER: "in role pgflow_worker", STRANGER: ""}
# of the roles of this chaos and ours only: other tests may share the server
RIGHTS = """
select 'role ' || rolname || ' ' || concat_ws(' ', rolsuper, rolinherit, rolcreaterole, rolcreatedb,
                                            rolcanlogin, rolreplication, rolbypassrls)
  from pg_roles where rolname ~ '^(chaos_<pid>|pgflow)_'
 union all
select 'member ' || roleid::regrole || ' ' || member::regrole || ' ' || admin_option
  from pg_auth_members where member::regrole::text ~ '^(chaos_<pid>|pgflow)_'
 union all
select 'function ' || oid::regprocedure || ' ' || proowner::regrole || ' ' || prosecdef || ' '
       || md5(prosrc) || ' ' || coalesce(proacl::text, '')
  from pg_proc where pronamespace::regnamespace::text in ('pgflow', 'pgflowd', 'pgmq', 'public')
 union all
select 'relation ' || oid::regclass || ' ' || relowner::regrole || ' ' || coalesce(relacl::text, '')
  from pg_class where relnamespace::regnamespace::text in ('pgflow', 'pgflowd', 'public')
   and relkind in ('r', 'v', 'p', 'S')
 union all
select 'schema ' || nspname || ' ' || nspowner::regrole || ' ' || coalesce(nspacl::text, '')
  from pg_namespace where nspname !~ '^pg_(temp|toast)'
 union all
select 'database ' || coalesce(datacl::text, '') from pg_database where datname = current_database()
"""


def prepare(conn: psycopg.Connection[Any]) -> None:
    """Create the roles and the users, in a fresh database."""
    with conn.transaction():
        conn.execute(schema.roles_sql().encode())
    for user, more in USERS.items():
        with contextlib.suppress(psycopg.errors.DuplicateObject):  # of an earlier test
            conn.execute(f"create role {user} login {more}".encode())
        conn.execute(f"alter role {user} nocreatedb; revoke pgflow_owner from {user}".encode())
    conn.execute("grant insert, delete on all tables in schema public to pgflow_owner")


def rights(conn: psycopg.Connection[Any]) -> set[str]:
    """All rights that anybody has on objects of ours, and who is what."""
    return {text for (text,) in conn.execute(RIGHTS.replace("<pid>", str(os.getpid())).encode())}
