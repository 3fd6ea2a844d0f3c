"""
Reads and writes the rows of daemons, which show all machines, and their settings; reads which
connections the server has, and what hinders the work of a whole database.

`core.server_connections` says what to do about hindrances. They are found in the catalogs of the
whole server; the sessions of others have no state and no age for who is not in `pg_read_all_stats`.

Behind a pooler these are the numbers of the server, not those of the pooler, which nobody knows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pgflowd.core.documents import encoded
from pgflowd.core.documents.daemons import ListedDaemon, SharedSetting, told_status
from pgflowd.core.json import decode
from pgflowd.core.server_connections import ConnectionHolder, Holder, ServerConnections
from pgflowd.core.statuses import DaemonState
from pgflowd.db.query import Query, Rows, columns_of, document_of, documents, only

DAEMONS_LOOKED_AT = "look at daemons"  # on channel pgflowd


def tell_daemon(status: str) -> Query[None]:
    """Write the row of a daemon, from its status document as JSON."""
    return Query("select pgflowd.tell_daemon(%s::jsonb)", (status,), lambda rows: None)


def list_daemons(*, only_problems: bool = False) -> Query[list[ListedDaemon]]:
    """Return the daemons of all machines; perhaps with nothing of their status but problems."""
    status = "jsonb_build_object('problems', status -> 'problems')" if only_problems else "status"
    columns = {"living_workers": "living", "held_tasks": "tasks", "status": f"({status})::text"}
    sql = f"select {columns_of(ListedDaemon, **columns)} from pgflowd.daemons()"
    return Query(sql, (), lambda rows: list(map(_listed, rows)))


def look_at_daemons() -> Query[None]:
    """Ask for rows that are not older than two seconds, for a minute; nobody may hear it."""
    return Query("select pgflowd.look_at_daemons()", (), lambda rows: None)


def _listed(row: Sequence[Any]) -> ListedDaemon:
    """A daemon; of what it has told nothing, if that is nested too deep."""
    *columns, text = row
    one = document_of(ListedDaemon, (*columns, None))
    try:
        told = decode(text)
    except RecursionError:
        told = None
    about = {"id": str(one.daemon_id), "started_at": encoded(one.started_at.replace(microsecond=0))}
    state = one.state if one.state in list(DaemonState) else DaemonState.DEGRADED
    return replace(one, state=state, status=told_status(told) | about)


# connections that the server allows, and who holds them; `core.server_connections` judges them


def server_connections(*, is_ours: bool = True) -> Query[ServerConnections]:
    """Return what is allowed and left. `is_ours`: the connection that asks is one of the daemon."""

    def read(rows: Rows) -> ServerConnections:
        allowed, left = rows[0][:2]
        holders = [ConnectionHolder(*row[2:]) for row in rows if row[2] is not None]
        return ServerConnections(allowed, left, holders)

    return Query(_READ, (is_ours,), read)


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


# settings that all daemons on a database share


def list_settings() -> Query[list[SharedSetting]]:
    """Return every setting, with what it takes."""
    return documents(SharedSetting, "pgflowd.list_settings()")


def set_setting(name: str, value: Any) -> Query[Any]:
    """Change a setting; return the old value."""
    query = "select pgflowd.set_setting(%s, %s::jsonb, session_user)"
    return Query(query, (name, json.dumps(value)), lambda rows: decode(only(rows)))


def tell_core(replaced: list[str]) -> Query[None]:
    """Keep which functions of schema pgflow are not ours: while there are some, claims refuse."""
    return Query("select pgflowd.tell_core(%s::text[])", (replaced,), lambda _: None)


def queue_share() -> Query[float]:
    """
    Return how full the queue of notifications is.

    The question also empties it: PostgreSQL lets go of what all listeners have read only here, and
    in a notification that succeeds, which none does once the queue is full.
    """
    return Query("select pg_catalog.pg_notification_queue_usage()", (), only)


def oldest_transactions(old_s: float, max_rows: int) -> Query[Sequence[Holder]]:
    """Return open transactions of all databases, the oldest first."""
    return Query(_OLDEST, (old_s, old_s, max_rows), lambda rows: [Holder(*row) for row in rows])


def oldest_snapshots(transactions: int, max_rows: int) -> Query[Sequence[Holder]]:
    """Return what keeps dead rows of this database since so many transactions or more."""
    params = (transactions, max_rows)
    return Query(_SNAPSHOTS, params, lambda rows: [Holder(*row) for row in rows])


def idle_slots(least_bytes: int) -> Query[list[tuple[Holder, int]]]:
    """Return replication slots without a reader, and how much log each keeps."""
    return Query(
        _SLOTS, (least_bytes,), lambda rows: [(Holder("slot", row[0]), row[1]) for row in rows]
    )


_OLDEST = """
select 'session', pid::text, nullif(application_name, ''), usename::text, datname::text, state,
       extract(epoch from clock_timestamp() - xact_start)::float8 as age_s, null::int
  from pg_catalog.pg_stat_activity
 where pid <> pg_backend_pid() and backend_type = 'client backend'
   and xact_start <= clock_timestamp() - make_interval(secs => %s)
union all
select 'prepared', gid, null, owner::text, database::text, null,
       extract(epoch from clock_timestamp() - prepared)::float8, null
  from pg_catalog.pg_prepared_xacts
 where prepared <= clock_timestamp() - make_interval(secs => %s)
 order by age_s desc limit %s
"""
_SNAPSHOTS = """
select * from (
  select case when backend_type = 'walsender' or datid is null then 'standby' else 'session' end,
         pid::text, nullif(application_name, ''), usename::text, datname::text, state,
         extract(epoch from clock_timestamp() - xact_start)::float8,
         greatest(age(backend_xmin), age(backend_xid)) as transactions
    from pg_catalog.pg_stat_activity as activity
   where pid <> pg_backend_pid() and (datname = current_database() or datid is null)
     and not exists (select from pg_catalog.pg_stat_progress_vacuum as vacuum
                      where vacuum.pid = activity.pid)  -- a vacuum hinders no other
  union all
  select 'prepared', gid, null, owner::text, database::text, null,
         extract(epoch from clock_timestamp() - prepared)::float8, age(transaction)
    from pg_catalog.pg_prepared_xacts where database = current_database()
  union all
  select 'slot', slot_name::text, null, null, null,
         case when active then 'active' else 'inactive' end, null, age(xmin)
    from pg_catalog.pg_replication_slots) as held
 where transactions >= %s order by transactions desc limit %s
"""
_SLOTS = """
select slot_name::text, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint as kept
  from pg_catalog.pg_replication_slots
 where not active and not pg_is_in_recovery()
   and pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) >= %s
 order by kept desc
"""
