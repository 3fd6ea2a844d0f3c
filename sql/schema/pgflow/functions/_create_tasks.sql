-- _create_tasks(run_ids, step_slugs): messages and tasks of steps that have just started.
-- One send for each flow and start delay, in the order of the steps given and of the index:
-- queues number messages in the order they are sent in.
-- Called by: start_flows, _start_steps.   Locks: the new rows.
create or replace function pgflow._create_tasks(run_ids uuid[], step_slugs text[])
returns void language plpgsql set search_path = '', pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
  batch record;
  sent bigint[];
begin
  for batch in
    select task.flow_slug, task.delay_s, array_agg(task.run_id) as runs,
           array_agg(task.step_slug) as steps, array_agg(task.task_index) as indexes,
           array_agg(jsonb_build_object('flow_slug', task.flow_slug, 'run_id', task.run_id,
                                        'step_slug', task.step_slug,
                                        'task_index', task.task_index)) as messages
      from (select state.flow_slug, coalesce(step.opt_start_delay, 0) as delay_s,
                   started.run_id, started.step_slug, nr as task_index
              from unnest(run_ids, step_slugs) with ordinality as started (run_id, step_slug, ord)
             cross join lateral (
               select one.flow_slug, one.initial_tasks from pgflow.step_states as one
                where one.run_id = started.run_id and one.step_slug = started.step_slug
               offset 0) as state
              join pgflow.steps as step
                on step.flow_slug = state.flow_slug and step.step_slug = started.step_slug
             cross join lateral generate_series(0, state.initial_tasks - 1) as nr
             order by started.ord, nr) as task
     group by task.flow_slug, task.delay_s
  loop
    if cardinality(batch.messages) = 1 then
      sent := array(select pgmq.send(
        pgflow._queue_name(batch.flow_slug), batch.messages[1], batch.delay_s));
    else
      sent := array(select one from pgmq.send_batch(
        pgflow._queue_name(batch.flow_slug), batch.messages, batch.delay_s) as one order by one);
    end if;
    insert into pgflow.step_tasks (flow_slug, run_id, step_slug, task_index, message_id)
    select batch.flow_slug, task.run_id, task.step_slug, task.task_index, task.message_id
      from unnest(batch.runs, batch.steps, batch.indexes, sent)
             as task (run_id, step_slug, task_index, message_id);
  end loop;
end $$;
