"""
The checks of messages that somebody took away: the task of each ends all the same.

Each query returns no row if all is well. `oracle` is the ledger of the handlers. What was pruned
since is not judged, nor are tasks whose run failed or was cancelled before they could end.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import tuple_row

SHOWN = 5
TAKE = """
with gone as (delete from pgmq."{queue}" where random() < 0.5 returning msg_id, message)
insert into chaos_taken
  select (message ->> 'run_id')::uuid, message ->> 'step_slug', (message ->> 'task_index')::int,
         '{queue}', msg_id
    from gone where message ? 'task_index'
"""
GONE = "(select msg_id from {archive} union select msg_id from chaos_taken where queue = {queue})"
TASKS = """
with task as (
  select distinct t.* from chaos_taken
    join pgflow.step_tasks as t using (run_id, step_slug, task_index)
    join pgflow.runs as run using (run_id) where run.status = 'completed')
"""
TROUBLES = {
    "a task whose message was taken away ends": f"""{TASKS}
        select run_id, step_slug, task_index, status from task where status in ('queued', 'started')
    """,
    "one that completed did so as its handler says, and once": f"""{TASKS}
        select task.run_id, task.step_slug, task.task_index, count(o.token)
          from task
          left join pgflowd.attempts as a
            on (a.run_id, a.step_slug, a.task_index, a.outcome)
             = (task.run_id, task.step_slug, task.task_index, 'completed')
          left join oracle as o
            on (o.run_id, o.step_slug, o.task_index, o.token, o.event, o.output)
             = (a.run_id, a.step_slug, a.task_index, a.token, 'end', task.output)
         where task.status = 'completed'
         group by 1, 2, 3 having count(a.token) <> 1 or count(o.token) <> 1
    """,
    "one that failed has an attempt that failed": f"""{TASKS}
        select task.run_id, task.step_slug, task.task_index from task
         where task.status = 'failed' and not exists (
           select from pgflowd.attempts as a
            where (a.run_id, a.step_slug, a.task_index)
                = (task.run_id, task.step_slug, task.task_index)
              and a.outcome in ('failed', 'timed_out', 'crashed'))
    """,
}


def troubles(conn: psycopg.Connection[Any]) -> list[str]:
    """What is wrong with the tasks of these messages when everything has settled."""
    asking = conn.cursor(row_factory=tuple_row)
    found = {
        name: asking.execute(query.encode()).fetchmany(SHOWN) for name, query in TROUBLES.items()
    }
    return [
        f"{name}: {[tuple(map(str, row)) for row in rows]}" for name, rows in found.items() if rows
    ]
