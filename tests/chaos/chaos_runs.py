"""
The checks of the chaos of runs that begin later, after others, or one at a time.

Each query returns no row if all is well. `oracle` is the ledger of the handlers. The chaos starts
one run after the other, so those of a key have an order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from chaos_environment import LEASE_S, Environment
from psycopg.rows import tuple_row

SHOWN = 5
TROUBLES = {
    "no run begins before its time": """
        select run_id, start_at, started_at from pgflowd.run_status where started_at < start_at
    """,
    "no run begins before those for which it waits have ended": """
        select late.run_id, one.awaited, late.started_at
          from pgflowd.run_status as late
         cross join lateral unnest(string_to_array(late.labels ->> 'after', ',')::uuid[])
               as one (awaited)
          join pgflow.runs as early on early.run_id = one.awaited
         where late.started_at < coalesce(early.completed_at, early.failed_at)
           and early.run_id not in (select run_id from chaos_retried)
    """,
    "each verb that was called has left one action": """
        with called as (
          select run_id, verb, count(*) as times from chaos_verbs group by 1, 2
        ), kept as (
          select run_id, action as verb, count(*) as times
            from pgflowd.actions where actor = 'chaos' group by 1, 2)
        select run_id, verb, called.times, kept.times
          from called full join kept using (run_id, verb)
         where called.times is distinct from kept.times
    """,
    "nobody waits for a run any more": "select * from pgflowd.awaits",
    "every run begins": "select run_id, status from pgflowd.run_status where started_at is null",
    "runs of a key begin in the order of their starts": """
        with begun as (
          select ours.run_id, ours.singleton_key, ours.created_at, run.started_at
            from pgflowd.runs as ours join pgflow.runs as run using (run_id)
           where ours.start_at is null)
        select early.run_id, late.run_id
          from begun as early join begun as late using (singleton_key)
         where early.created_at < late.created_at and early.started_at > late.started_at
    """,
}
TWO_AT_WORK = """
with execution as (
  select ours.singleton_key, o.run_id, min(o.daemon) as daemon, min(o.at) as began,
         max(o.at) as ended
    from oracle as o join pgflowd.runs as ours using (run_id)
   where ours.singleton_key is not null group by 1, 2, o.step_slug, o.task_index, o.token)
select early.daemon, early.began, early.ended, early.singleton_key, early.run_id, late.run_id
  from execution as early join execution as late using (singleton_key)
 where early.run_id <> late.run_id and early.began < late.began and early.ended > late.began
"""
StoodStill = Callable[[Environment, str, float, float], bool]


def troubles(environment: Environment, stood_still: StoodStill) -> Iterator[str]:
    """What is wrong with runs that waited, when everything has settled."""
    asking = environment.conn().cursor(row_factory=tuple_row)
    for name, query in TROUBLES.items():
        if rows := asking.execute(query.encode()).fetchmany(SHOWN):
            yield f"{name}: {[shown(row) for row in rows]}"
    for row in asking.execute(TWO_AT_WORK.encode()).fetchall():
        if not stood_still(environment, row[0], row[1] - LEASE_S, row[2]):
            yield f"handlers of two runs of a key do not overlap: {shown(row)}"


def shown(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(map(str, row))
