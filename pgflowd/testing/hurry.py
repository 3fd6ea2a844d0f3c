"""
Lets time pass for runs on the database of a test: what is to happen later is due now.

That is delays of tasks and of starts, pauses between attempts, and the ends of sleeps and of the
patience with signals and runs. A run's expiry is left alone. Only tests change these tables.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg

_LATER = """
select 'wait' as kind, wait.run_id, wait.due_at as at, null::bigint as message_id, null as queue
  from pgflowd.waits as wait where wait.due_at > now()
union all
select 'start', run.run_id, run.due_at, null, null
  from pgflowd.runs as run where run.state = 'planned' and run.due_at > now()
union all
select 'message', task.run_id, message.vt, task.message_id, queue.name
  from pgflow.flows as flow
 cross join lateral (select flow.flow_slug as name) as queue
 cross join lateral pg_temp.pgflowd_testing_messages(queue.name) as message
  join pgflow.step_tasks as task on task.message_id = message.msg_id
                                and task.flow_slug = flow.flow_slug
 where task.status = 'queued' and message.vt > now()
"""
# a temporary function, since each queue is a table of its own
_MESSAGES = """
create or replace function pg_temp.pgflowd_testing_messages(queue text)
returns table (msg_id bigint, vt timestamptz) language plpgsql as $$
begin
  if to_regclass('pgmq.' || quote_ident('q_' || lower(queue))) is not null then
    return query execute format('select msg_id, vt from pgmq.%I', 'q_' || lower(queue));
  end if;
end $$
"""
_END_WAIT = "update pgflowd.waits set due_at = now() where run_id = %s and due_at = %s"
_START = "update pgflowd.runs set due_at = now(), start_at = now() where run_id = %s"
_SHOW = "select pgmq.set_vt(%s, %s, 0)"


def hurry(conn: psycopg.Connection[Any], run_id: UUID | None = None) -> bool:
    """
    Let all that is to happen in a run later happen now; without a run, the first thing of all.

    Return whether there was anything.
    """
    conn.execute(_MESSAGES)
    query = f"select * from ({_LATER}) as later where %s::uuid is null or run_id = %s order by at"
    found = conn.execute(query, (run_id, run_id)).fetchall()
    for kind, of_run, at, message_id, queue in found if run_id else found[:1]:
        if kind == "message":
            conn.execute(_SHOW, (queue, message_id))
        elif kind == "wait":
            conn.execute(_END_WAIT, (of_run, at))
        else:
            conn.execute(_START, (of_run,))
    return bool(found)
