-- _create_tasks(run_ids, step_slugs): messages and tasks of steps that have just started.
-- One send for each flow and start delay, in the order of the steps given and of the index;
-- the message says which task it is for, so the task is read off it.
-- Called by: start_flows, _start_steps.   Locks: the new rows.
create or replace function pgflow._create_tasks(run_ids uuid[], step_slugs text[])
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  batch record;
begin
  for batch in
    select task.flow_slug, task.delay_s, array_agg(task.message order by task.ord, task.task_index) as messages
      from (select state.flow_slug, coalesce(step.opt_start_delay, 0) as delay_s, started.ord, nr as task_index,
                   jsonb_build_object('flow_slug', state.flow_slug, 'run_id', state.run_id,
                                      'step_slug', state.step_slug, 'task_index', nr) as message
              from unnest(run_ids, step_slugs) with ordinality as started (run_id, step_slug, ord)
             cross join lateral (
               select one.* from pgflow.step_states as one
                where one.run_id = started.run_id and one.step_slug = started.step_slug
               offset 0) as state
              join pgflow.steps as step
                on step.flow_slug = state.flow_slug and step.step_slug = state.step_slug
             cross join lateral generate_series(0, state.initial_tasks - 1) as nr) as task
     group by task.flow_slug, task.delay_s
  loop
    insert into pgflow.step_tasks (flow_slug, run_id, step_slug, task_index, message_id)
    select batch.flow_slug, (task.message ->> 'run_id')::uuid, task.message ->> 'step_slug',
           (task.message ->> 'task_index')::int, task.message_id
      from unnest(batch.messages,
                  array(select sent from pgmq.send_batch(pgflow._queue_name(batch.flow_slug),
                                                         batch.messages, batch.delay_s) as sent
                         order by sent)) as task (message, message_id);
  end loop;
end $$;
