-- queue_violations(max_rows): returns I5, I6, I7 and I15, as far as queues show them: of each queue the
-- oldest 10,000 messages are looked at.
-- Called by: violations; `pgflowd doctor`.   Locks: nothing.
create or replace function pgflowd.queue_violations(max_rows int default 20)
returns table (invariant text, flow_slug text, run_id uuid, step_slug text, task_index int,
               detail text)
language plpgsql stable set search_path = '', pg_temp set jit = off as $$
#variable_conflict use_column
declare
  queue record;
begin
  for queue in
    select flow.flow_slug, known.queue_name, tabled.oid
      from pgflow.flows as flow
     cross join lateral pgflowd._queues(flow.flow_slug) as known
     cross join lateral (select to_regclass(pgflowd._queue_table(known.queue_name)) as oid) as tabled
     order by flow.flow_slug
  loop
    return query select violation.*
      from pgflowd._queue_violations(queue.flow_slug, queue.queue_name, queue.oid, max_rows)
           as violation;
  end loop;
end $$;
