"""
The checks of the chaos of gates: who executed what, and how many of a limit at once.

Each query returns no row if all is well. `oracle` is the ledger of the handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from chaos_environment import LEASE_S, Environment
from psycopg.rows import tuple_row

SHOWN = 5
TROUBLES = {
    "nobody executes what it lacks something for": """
        select run_id, daemon, output from oracle where event = 'caps' and not output ? 'gpu'
    """,
    "no place of a limit is left over": """
        select * from pgflowd.slots where free_at is null or free_at < now() - interval '1 minute'
    """,
    "nobody waits for a gate any more": """
        select * from pgflowd.waits where kind in ('need', 'limit')
    """,
}
THREE_AT_WORK = """
with execution as (
  select run_id, task_index, token, min(daemon) as daemon, min(at) as began, max(at) as ended
    from oracle where step_slug = 'visits' group by 1, 2, 3
), held as (
  select execution.*, host.output as host from execution
    join oracle as host using (run_id, task_index, token)
   where host.event = 'host' and host.step_slug = 'visits')
select one.daemon, one.began, one.ended, one.host, one.run_id, one.task_index,
       array_agg(array[other.daemon, other.began::text, other.ended::text])
  from held as one
  join held as other on other.host = one.host and other.token <> one.token
                    and other.began <= one.began and other.ended > one.began
 group by 1, 2, 3, 4, 5, 6, one.token having count(*) > 1
"""
StoodStill = Callable[[Environment, str, float, float], bool]


def troubles(environment: Environment, stood_still: StoodStill) -> Iterator[str]:
    """What is wrong with tasks that have passed a gate, when everything has settled."""
    asking = environment.conn().cursor(row_factory=tuple_row)
    for name, query in TROUBLES.items():
        if rows := asking.execute(query.encode()).fetchmany(SHOWN):
            yield f"{name}: {[_shown(row) for row in rows]}"
    for row in asking.execute(THREE_AT_WORK.encode()).fetchall():
        all_of_them = [row[:3], *row[6]]
        if not any(
            stood_still(environment, daemon, float(began) - LEASE_S, float(ended))
            for daemon, began, ended in all_of_them
        ):
            yield f"no more than two visit a host: {_shown(row)}"


def _shown(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(map(str, row))
