"""The queries that delete runs, and tell how much a database keeps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from pgflowd.core.sweeper import Kept, Pruned, RunPlace
from pgflowd.core.wishes import labels_json
from pgflowd.db.query import Query, Rows

AT_ONCE = 100  # runs of one transaction, some hundredths of a second


def prune_next(
    older_than_s: float,
    flow_slug: str | None,
    place: RunPlace | None,
    *,
    labels: Mapping[str, str],
    keep_failed: bool,
    only_count: bool,
    is_first: bool,
) -> Query[Pruned]:
    """Delete the next runs, or count them; `is_first`: of this prune, so it leaves an action."""
    age = timedelta(seconds=older_than_s)
    chosen = (age, flow_slug, keep_failed, AT_ONCE, only_count, *(place or NOWHERE), is_first)
    params = (*chosen, labels_json(labels or None))
    return Query(_PRUNE_NEXT, params, _read_pruned)


def prune_expired(
    place: RunPlace | None, most: int = AT_ONCE, *, is_skipped: bool = False
) -> Query[Pruned]:
    """Delete the next runs that are older than the settings allow, or go past them."""
    return Query(_PRUNE_EXPIRED, (most, *(place or NOWHERE), is_skipped), _read_pruned)


def kept() -> Query[Kept]:
    """Return how much the database keeps; it asks for the sizes of all files."""
    return Query(_KEPT, (), lambda rows: Kept(*rows[0]))


def _read_pruned(rows: Rows) -> Pruned:
    runs, *place = rows[0]
    return Pruned(runs, None if place[0] is None else RunPlace(*place))


NOWHERE = (None, None)
_PRUNE_NEXT = """
select pruned, after_at, after_run
  from pgflowd.prune_next(%s, %s, %s, %s, %s, %s, %s, case when %s then session_user end,
                          labels => %s::jsonb)
"""
_PRUNE_EXPIRED = "select pruned, after_at, after_run from pgflowd.prune_expired(%s, %s, %s, %s)"
_KEPT = """
select (select sum(pg_total_relation_size(class.oid))::bigint
          from pg_catalog.pg_class as class
          join pg_catalog.pg_namespace as schema on schema.oid = class.relnamespace
         where class.relkind in ('r', 'p') and (schema.nspname in ('pgflow', 'pgflowd')
               or schema.nspname = 'pgmq' and class.relname ~ '^[aq]_')),
       (select nullif(greatest(class.reltuples, 0), 0)::bigint from pg_catalog.pg_class as class
         where class.oid = 'pgflow.runs'::regclass),
       (select min(run.started_at) from pgflow.runs as run),
       pgflowd.setting('retention_completed') #>> '{}',
       pgflowd.setting('retention_failed') #>> '{}'
"""
