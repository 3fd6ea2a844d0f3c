"""
Reads what hinders the work of a whole database; `core.server_connections` says what to do about it.

It asks the catalogs of the whole server. The sessions of others have no state and no age for who
is not in `pg_read_all_stats`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgflowd.core.server_connections import Holder
from pgflowd.db.query import Query, Rows, only


def queue_share() -> Query[float]:
    """
    Return how full the queue of notifications is.

    The question also empties it: PostgreSQL lets go of what all listeners have read only here, and
    in a notification that succeeds, which none does once the queue is full.
    """
    return Query("select pg_catalog.pg_notification_queue_usage()", (), only)


def oldest_transactions(old_s: float, max_rows: int) -> Query[Sequence[Holder]]:
    """Return open transactions of all databases, the oldest first."""
    return Query(_OLDEST, (old_s, old_s, max_rows), _holders)


def oldest_snapshots(transactions: int, max_rows: int) -> Query[Sequence[Holder]]:
    """Return what keeps dead rows of this database since so many transactions or more."""
    return Query(_SNAPSHOTS, (transactions, max_rows), _holders)


def idle_slots(least_bytes: int) -> Query[list[tuple[Holder, int]]]:
    """Return replication slots without a reader, and how much log each keeps."""
    return Query(
        _SLOTS, (least_bytes,), lambda rows: [(Holder("slot", row[0]), row[1]) for row in rows]
    )


def _holders(rows: Rows) -> list[Holder]:
    return [Holder(*row) for row in rows]


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
