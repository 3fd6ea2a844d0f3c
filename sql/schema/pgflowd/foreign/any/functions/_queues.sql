-- _queues(flow_slug): returns the queues that a worker of this flow reads, on a foreign core. One per
-- flow, named as its slug; since 0.17 a step may have one of its own.
-- Called by: claim, _count_open_runs, _end_undo, _has_open_work, _hold_task, list_caps, list_flows, _open_runs,
-- _open_tasks, open_tasks, _prune_leftovers, queue_violations, restart_worker, _start_undo, task_claim,
-- unserved_queues, view flow_status; commands, db migrate.   Locks: nothing.
create or replace function pgflowd._queues(flow_slug text)
returns table (queue_name text, step_slug text)
language plpgsql stable set search_path = '', pg_temp as $$
#variable_conflict use_column
begin
  if not exists (select from pg_attribute as attribute
                  where attribute.attrelid = 'pgflow.flows'::regclass
                    and attribute.attname = 'queue_mode' and not attribute.attisdropped) then
    return query select _queues.flow_slug, null::text;
    return;
  end if;
  return query
    select distinct step.queue_name,
           case when flow.queue_mode = 'step' then step.step_slug end
      from pgflow.flows as flow
      join pgflow.steps as step on step.flow_slug = flow.flow_slug
     where flow.flow_slug = _queues.flow_slug
     order by 1;
end $$;
