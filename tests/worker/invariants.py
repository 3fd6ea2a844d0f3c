"""
Invariants: queries that return no row after any test (failures.md, section 3).

Without the oracle: those that ask handlers what happened need a database of their own.
"""

from __future__ import annotations

from typing import Any

import psycopg

QUERIES = {
    "I2 a completed run is complete": """
        select r.run_id, s.step_slug from pgflow.runs r join pgflow.step_states s using (run_id)
         where r.status = 'completed'
           and (r.remaining_steps <> 0 or s.status not in ('completed', 'skipped')
                or coalesce(s.remaining_tasks, 0) <> 0)
    """,
    "I3 a completed step has exactly its tasks, all completed": """
        select s.run_id, s.step_slug from pgflow.step_states s
          left join pgflow.step_tasks t using (run_id, step_slug)
         where s.status = 'completed' group by s.run_id, s.step_slug, s.initial_tasks
        having count(*) filter (where t.status = 'completed') <> s.initial_tasks
            or count(t.task_index) <> s.initial_tasks
            or coalesce(max(t.task_index), -1) <> s.initial_tasks - 1
    """,
    "I5 a task that may run has its message": """
        select t.* from pgflow.step_tasks t join pgflow.runs r using (run_id)
          join pgflow.step_states s using (run_id, step_slug)
         where t.flow_slug = 'flow' and r.status = 'started' and s.status = 'started'
           and t.status = 'queued'
           and not exists (select from pgmq.q_flow m where m.msg_id = t.message_id)
    """,
    "I6 a message has its task": """
        select m.msg_id from pgmq.q_flow m where not exists (
          select from pgflow.step_tasks t join pgflow.runs r using (run_id)
           where t.flow_slug = 'flow' and t.message_id = m.msg_id
             and t.status in ('queued', 'started') and r.status = 'started')
    """,
    "I7 the message of a completed task is archived once": """
        select t.* from pgflow.step_tasks t where t.flow_slug = 'flow' and t.status = 'completed'
           and (select count(*) from pgmq.a_flow a where a.msg_id = t.message_id) <> 1
    """,
    "I8 nothing fails without a text": """
        select t.* from pgflow.step_tasks t join pgflow.runs r using (run_id)
         where t.status = 'failed' and coalesce(t.error_message, '') = ''
            or t.permanently_stalled_at is not null and r.status = 'started'
    """,
    "I9 a started task of an open run has exactly one live lease": """
        select t.* from pgflow.step_tasks t join pgflow.runs r using (run_id)
         where r.status = 'started' and t.status = 'started' and 1 <> (
           select count(*) from pgflowd.attempts a where a.ended_at is null
              and (a.run_id, a.step_slug, a.task_index, a.worker_id, a.attempt)
                = (t.run_id, t.step_slug, t.task_index, t.last_worker_id, t.attempts_count))
    """,
    "I10 a completed task has one completed attempt, any other none": """
        select t.* from pgflow.step_tasks t
         where (t.status = 'completed')::int <> (
           select count(*) from pgflowd.attempts a
            where (a.run_id, a.step_slug, a.task_index, a.outcome)
                = (t.run_id, t.step_slug, t.task_index, 'completed'))
    """,
}


def broken(conn: psycopg.Connection[Any]) -> list[str]:
    """The invariants that do not hold."""
    return [
        f"{name}: {rows[:3]}"
        for name, query in QUERIES.items()
        if (rows := conn.execute(query.encode()).fetchall())
    ]
