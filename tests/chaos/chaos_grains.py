"""What handlers wrote down of attempts that they left unspent, and of their runners' lifespans."""

from __future__ import annotations

from typing import Any

import psycopg

ASKED = """
select o.run_id, o.step_slug, o.task_index, o.token, a.outcome
  from oracle o join pgflowd.attempts a using (run_id, step_slug, task_index, token)
 where o.event = 'asked' and a.outcome in ('completed', 'failed')
"""
# each attempt that was spent has a number of its own; those that were not have that of the next one
SPENT = """
select t.run_id, t.step_slug, t.task_index, t.attempts_count, count(a.token) as spent
  from pgflow.step_tasks t
  join pgflowd.attempts a using (run_id, step_slug, task_index)
 where t.status = 'completed' and a.outcome in ('completed', 'failed', 'timed_out', 'crashed')
   and exists (select from oracle o where o.event = 'asked' and o.run_id = t.run_id
                and o.step_slug = t.step_slug and o.task_index = t.task_index)
 group by 1, 2, 3, 4 having t.attempts_count > count(a.token)
"""

LIVES = """
select pid, output, count(*) filter (where event = 'entered') as entered,
       count(*) filter (where event = 'left') as left_
  from oracle where event in ('entered', 'left') group by 1, 2
having count(*) filter (where event = 'entered') <> 1 or count(*) filter (where event = 'left') > 1
"""
TITLES = """
select run.run_id, ours.title, ours.labels from pgflow.runs as run
  join pgflow.flows as flow using (flow_slug)
  left join pgflowd.runs as ours using (run_id)
 where run.flow_slug = 'chain' and flow.starts is not null
   and (ours.title is distinct from 'chain ' || (run.input ->> 'n') || ' of'
        or ours.labels ->> 'n' is distinct from run.input ->> 'n')
"""
STRANGERS = "select run_id, step_slug, task_index, token from oracle where event = 'stranger'"


def troubles(conn: psycopg.Connection[Any]) -> list[str]:
    """Attempts that were spent although their handlers asked to wait."""
    found = [f"spent although it asked: {tuple(map(str, row))}" for row in conn.execute(ASKED)]
    found += [f"a lifespan entered or left again: {row}" for row in conn.execute(LIVES)]
    found += [f"resources of another runner: {row}" for row in conn.execute(STRANGERS)]
    found += [f"another title than the input's: {row}" for row in conn.execute(TITLES)]
    return found + [f"too many were spent: {tuple(map(str, row))}" for row in conn.execute(SPENT)]
