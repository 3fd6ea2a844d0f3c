"""
The checks of the chaos of schedules: each tick has one run, and its handler knows the tick.

Each query returns no row if all is well. `oracle` is the ledger of the handlers. The schedule
`ticking` catches up all, so no second from its first tick to its last may be without a run, unless
that was pruned.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos_environment import Environment
from psycopg.rows import tuple_row

SHOWN = 5
TROUBLES = {
    "each tick has one run at most": """
        select labels, count(*) from pgflowd.runs where labels ? 'schedule'
         group by 1 having count(*) > 1
    """,
    "each tick has a run": """
        with ticks as (
          select start_at from pgflowd.runs where labels ->> 'schedule' = 'ticking')
        select second
          from (select min(start_at) as first, max(start_at) as last from ticks) as span
         cross join lateral generate_series(span.first, span.last, '1 second') as second
         where second not in (select start_at from ticks)
           and pgflowd._run_id_of_key('ticking', 'schedule ticking ' || extract(epoch from second))
               not in (select run_id from chaos_pruned)
    """,
    "a handler knows its tick": """
        select o.run_id, o.output, run.labels
          from oracle as o join pgflowd.runs as run using (run_id)
         where o.event = 'tick of' and o.output <>
               jsonb_build_array(run.labels -> 'schedule', run.labels -> 'scheduled_for')
    """,
    "a schedule starts its runs": "select name, error from pgflowd.schedules where error <> ''",
}


def troubles(environment: Environment) -> Iterator[str]:
    """What is wrong with runs of schedules, when everything has settled."""
    asking = environment.conn().cursor(row_factory=tuple_row)
    for name, query in TROUBLES.items():
        if rows := asking.execute(query.encode()).fetchmany(SHOWN):
            yield f"{name}: {[tuple(map(str, row)) for row in rows]}"
