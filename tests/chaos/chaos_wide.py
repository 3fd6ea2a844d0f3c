"""
Wide runs of one moment: more is due at once than one statement of a sweeper may do.

The server writes messages of flow `wide` slowly, so that each of these runs fits into the statement
timeout of the daemons, and all together do not. Sleeps, signals and planned runs go on meanwhile:
no timer may be late in many looks, one after the other. Each query of `TROUBLES` returns no row if
all is well. `oracle` is the ledger of the handlers.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
from chaos_environment import Environment, Place
from psycopg.rows import tuple_row

SHOWN = 5
RUNS = 16  # a message takes 40 ms (chaos_environment.TABLES): a run 0.32 s, all of them 5 s;
WIDTH = 8  # a statement of a daemon has 4 s
LATE_LOOKS = 20  # with at least 2 s between two: longer than any fault

SLOWLY = """
create or replace trigger chaos_slowly before insert on pgmq.q_wide
  for each row execute function chaos_slowly()
"""
IS_SLOW = "select 1 from pg_trigger where tgname = 'chaos_slowly'"
PLANNED = "select 1 from pgflowd.runs where flow_slug = 'wide' and state = 'planned'"
START = """
select pgflowd.start('wide', %s::jsonb, run_id => one.run_id, start_at => now() + interval '1 s')
  from unnest(%s::uuid[]) as one (run_id)
"""
LATE = """
select 'wait', flow_slug, run_id || ' ' || step_slug || ' ' || task_index, due_at
  from pgflowd.waits where due_at < now()
 union all
select 'run', flow_slug, run_id::text, due_at from pgflowd.runs where due_at < now()
 union all
select 'schedule', flow_slug, name, due_at from pgflowd.schedules where due_at < now()
"""
TROUBLES = {
    "each element of a wide run was executed to its end once": """
        select run.run_id, index, count(o.token)
          from pgflow.runs as run
         cross join lateral generate_series(0, jsonb_array_length(run.input) - 1) as index
          left join pgflowd.attempts as a
            on (a.run_id, a.step_slug, a.task_index, a.outcome)
             = (run.run_id, 'spreads', index, 'completed')
          left join oracle as o
            on (o.run_id, o.step_slug, o.task_index, o.token, o.event, o.output)
             = (run.run_id, 'spreads', index, a.token, 'end', run.input -> index)
         where run.flow_slug = 'wide' and run.status = 'completed'
         group by run.run_id, index having count(o.token) <> 1
    """,
    "a handler of a wide run is executed for an attempt, and once for each": """
        select o.run_id, o.task_index, o.token, count(*)
          from oracle as o join pgflow.runs as run using (run_id)
          left join pgflowd.attempts as a using (run_id, step_slug, task_index, token)
         where run.flow_slug = 'wide' and o.event = 'start'
         group by 1, 2, 3 having count(*) <> 1 or count(a.token) <> 1
    """,
    "a wide run begins and ends": """
        select ours.run_id, ours.state, run.status
          from pgflowd.runs as ours left join pgflow.runs as run using (run_id)
         where ours.flow_slug = 'wide' and run.status is distinct from 'completed'
    """,
}


def wide(environment: Environment, place: Place) -> str:
    """Many wide runs are planned for one moment, unless some still are."""
    conn, chance = environment.conn(), environment.chance
    if conn.execute(PLANNED.encode()).fetchone():
        return ""
    if not conn.execute(IS_SLOW.encode()).fetchone():
        conn.execute(SLOWLY.encode())
    ids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(RUNS)]
    environment.in_doubt |= dict.fromkeys(ids, "wide")
    conn.execute(START, (json.dumps(list(range(WIDTH))), ids))
    for run_id in ids:
        environment.acknowledged[run_id] = environment.in_doubt.pop(run_id)
    return f"{RUNS} runs of {WIDTH} elements"


class Timers:
    """What was due in how many looks, one after the other."""

    def __init__(self) -> None:
        self._late: dict[tuple[Any, ...], int] = {}

    def look(self, conn: psycopg.Connection[Any]) -> list[str]:
        """The timers that stand still, each told once."""
        due = conn.cursor(row_factory=tuple_row).execute(LATE.encode()).fetchall()
        self._late = {timer: self._late.get(timer, 0) + 1 for timer in due}
        still = [timer for timer, looks in self._late.items() if looks == LATE_LOOKS]
        return [f"a timer stands still: {tuple(map(str, timer))}" for timer in still[:SHOWN]]


def troubles(environment: Environment) -> Iterator[str]:
    """What is wrong with wide runs when everything has settled."""
    asking = environment.conn().cursor(row_factory=tuple_row)
    for name, query in TROUBLES.items():
        if rows := asking.execute(query.encode()).fetchmany(SHOWN):
            yield f"{name}: {[tuple(map(str, row)) for row in rows]}"
