"""
Reads how many connections the server allows and who holds them; `core.server_connections` says
what follows.

Behind a pooler these are the numbers of the server, not those of the pooler, which tells nobody.
"""

from __future__ import annotations

from pgflowd.core.finding import Finding, error, ok, warning
from pgflowd.core.server_connections import (
    ConnectionHolder,
    ServerConnections,
    full_problem,
    shortage,
)
from pgflowd.db.query import Query, Rows, SyncConnection, execute


def server_connections(*, is_ours: bool = True) -> Query[ServerConnections]:
    """Return what is allowed and left. `is_ours`: the connection that asks is one of the daemon."""
    return Query(_READ, (is_ours,), _read)


def finding_of_connections(conn: SyncConnection, name: str, max_connections: int) -> Finding:
    """Compare what the daemon of this name may still open with what the server has left."""
    server = execute(conn, server_connections(is_ours=False))
    held = server.held_by_daemon(name)
    problem = full_problem(server) or shortage(server, daemon=max_connections or held, held=held)
    if problem:
        found = warning if problem.is_warning else error
        return found(problem.text, problem.next or "", problem.code)
    named = f"; {server.named}" if server.named else ""
    return ok(f"{server.left} of {server.allowed} are free{named}")


def _read(rows: Rows) -> ServerConnections:
    allowed, left = rows[0][:2]
    holders = [ConnectionHolder(*row[2:]) for row in rows if row[2] is not None]
    return ServerConnections(allowed, left, holders)


# -1 means no limit; superusers have none. Background processes of the server have no user, or
# connect to no database. Who is not in pg_read_all_stats sees user, database and application of
# all sessions, too.
_READ = """
with session as (
  select datid, usesysid, usename::text, coalesce(application_name, '') as application
    from pg_catalog.pg_stat_activity
   where datid is not null and usesysid is not null and (%s or pid <> pg_backend_pid())
     and coalesce(backend_type, 'client backend') = 'client backend'),
allowed as (
  select current_setting('max_connections')::int
           - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true)::int, 0) as server,
         case when not role.rolsuper then nullif(role.rolconnlimit, -1) end as role,
         case when not role.rolsuper then nullif(own.datconnlimit, -1) end as database,
         role.oid as role_oid, own.oid as database_oid
    from pg_catalog.pg_roles as role, pg_catalog.pg_database as own
   where role.rolname = current_user and own.datname = current_database())
select least(server, role, database),
       least(server - (select count(*) from session),
             role - (select count(*) from session where usesysid = role_oid),
             database - (select count(*) from session where datid = database_oid))::int,
       holder.usename, holder.application, holder.count::int
  from allowed
  left join (select usename, application, count(*) from session group by 1, 2) as holder on true
 order by holder.count desc
"""
