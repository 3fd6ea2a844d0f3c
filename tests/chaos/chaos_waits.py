"""
The checks of the chaos of what handlers remember, wait for, and commit with their task.

Each query returns no row if all is well. `oracle` is the ledger of the handlers. A retry of a run
ends its waits, so tasks of such runs may wait anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos_environment import Environment
from psycopg.rows import tuple_row

SHOWN = 5
KEPT = """
with kept as (
  select run_id, step_slug, task_index, token, at, output ->> 0 as name, output -> 1 as value
    from oracle where event = 'kept'
), ran as (
  select run_id, step_slug, task_index, token, at, output ->> 0 as name, output -> 1 as value
    from oracle where event = 'ran')
"""
WAITED = """
with waited as (
  select a.*, r.input, lead(a.started_at) over task - a.ended_at as waited
    from pgflowd.attempts a join pgflow.runs r using (run_id)
   where a.flow_slug = 'waiting' and run_id not in (select run_id from chaos_retried)
  window task as (partition by a.run_id, a.step_slug, a.task_index order by a.token))
"""
TROUBLES = {
    "a memo runs no more once it is kept": f"""{KEPT}
        select * from ran join kept using (run_id, step_slug, task_index, name)
         where ran.token > kept.token and ran.at > kept.at  -- an older attempt may read it later
    """,
    "what was kept is the same for every attempt": f"""{KEPT}
        select run_id, step_slug, task_index, name from kept
         group by 1, 2, 3, 4 having count(distinct value) > 1
    """,
    "what a memo returns was computed by it": f"""{KEPT}
        select run_id, step_slug, task_index, name, value from kept where name <> 'signal'
        except select run_id, step_slug, task_index, name, value from ran
    """,
    "the rows of a memo are there exactly if it is": """
        select * from
          (select run_id, step_slug, task_index, value from chaos_rows where what = 'memo') as a
          full join (select run_id, step_slug, task_index, data::float8 as value
                       from pgflowd.checkpoints where name = 'row') as b
          using (run_id, step_slug, task_index, value)
         where a.* is null or b.* is null
    """,
    "the rows of a step are there exactly if its attempt completed": """
        select * from
          (select run_id, step_slug, token from chaos_rows where what = 'step') as a
          full join (select run_id, step_slug, token from pgflowd.attempts
                      where step_slug = 'writes' and outcome = 'completed') as b
          using (run_id, step_slug, token)
         where a.* is null or b.* is null
    """,
    "no wait ends early": f"""{WAITED}
        select waited.* from waited
          left join pgflowd.checkpoints c
            on (c.run_id, c.step_slug, c.task_index, c.name)
             = (waited.run_id, waited.step_slug, waited.task_index, 'signal go 1')
         where waited.outcome = 'suspended' and waited.waited < case
           when waited.step_slug = 'prepares' then make_interval(secs => (input ->> 's')::float8)
           when c.data ? 'timeout' then make_interval(secs => 0.5 + waited.task_index) end
    """,
    "a task waits once": """
        select a.run_id, a.step_slug, a.task_index from pgflowd.attempts a
          join pgflow.step_tasks t using (run_id, step_slug, task_index)
         where t.status = 'completed' and a.step_slug in ('prepares', 'asks', 'dozes')
           and run_id not in (select run_id from chaos_retried)
         group by 1, 2, 3 having count(*) filter (where a.outcome = 'suspended') <> 1
    """,
    "each wait has one signal or its timeout": """
        select t.*, c.data, s.payload from pgflow.step_tasks t
          left join pgflowd.checkpoints c
            on (c.run_id, c.step_slug, c.task_index, c.name)
             = (t.run_id, t.step_slug, t.task_index, 'signal go 1')
          left join pgflowd.signals s
            on (s.run_id, s.step_slug, s.task_index) = (t.run_id, t.step_slug, t.task_index)
         where t.step_slug = 'asks' and t.status = 'completed' and (
           t.output is distinct from coalesce(s.payload, '"none"')
           or c.data is distinct from case when s.payload is null then '{"timeout": true}'
                                           else jsonb_build_object('got', s.payload) end)
    """,
    "each child was started once": """
        select t.run_id, r.input, count(c.run_id) from pgflow.step_tasks t
          join pgflow.runs r using (run_id)
          left join pgflowd.runs c on (c.parent_run_id, c.parent_step, c.parent_index)
                                    = (t.run_id, t.step_slug, t.task_index)
         where t.step_slug = 'begets' and t.status = 'completed'
         group by t.run_id, r.input having count(c.run_id) <> (r.input ->> 'n')::int
    """,
    "each child has a parent": """
        select run_id from pgflow.runs where flow_slug = 'begotten' and run_id not in (
          select run_id from pgflowd.runs where parent_run_id is not null)
    """,
    "a parent goes on when its children have ended, and sees how": """
        select t.run_id, t.output from pgflow.step_tasks t join pgflow.runs r using (run_id)
         where t.step_slug = 'begets' and t.status = 'completed' and t.output is distinct from (
           select coalesce(jsonb_agg(jsonb_build_array(
                    'completed', jsonb_build_object('grows', 2 * n)) order by n), '[]')
             from generate_series(0, (r.input ->> 'n')::int - 1) as n)
    """,
    "nothing waits any more": "select * from pgflowd.waits",
    "nobody waits for the end of a run any more": "select * from pgflowd.awaits",
}


def troubles(environment: Environment) -> Iterator[str]:
    """What is wrong with memos, waits, signals and rows when everything has settled."""
    asking = environment.conn().cursor(row_factory=tuple_row)
    for name, query in TROUBLES.items():
        if rows := asking.execute(query.encode()).fetchmany(SHOWN):
            yield f"{name}: {[tuple(map(str, row)) for row in rows]}"
    known = """
        select signal_id from pgflowd.signals union all select signal_id from chaos_gone_signals
    """
    sent = {number for (number,) in asking.execute(known)}
    if lost := environment.signalled - sent:
        yield f"signals were acknowledged and are lost: {sorted(lost)[:SHOWN]}"
