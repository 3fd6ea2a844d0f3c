-- _create_tasks(run_ids, step_slugs): creates the messages and tasks of steps that have just
-- started. One send per flow and start delay, in the order of the given steps and of the index.
-- The queues come in the order of their names, since pgmq.enable_notify_insert has a row for each
-- that a send locks.
-- Called by: _start_runs, _start_steps.   Locks: the new rows.
create or replace function pgflow._create_tasks(run_ids uuid[], step_slugs text[])
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
begin
  perform pgflow._send_tasks(batch.flow_slug, batch.delay_s, batch.runs, batch.steps, batch.indexes)
     from (select task.flow_slug, task.delay_s, array_agg(task.run_id) as runs,
                  array_agg(task.step_slug) as steps, array_agg(task.task_index) as indexes
             from (select state.flow_slug, pgflow._start_delay(step) as delay_s,
                          started.run_id, started.step_slug, nr as task_index
                     from unnest(run_ids, step_slugs) with ordinality
                            as started (run_id, step_slug, ord)
                    cross join lateral (
                      select one.flow_slug, one.initial_tasks from pgflow.step_states as one
                       where one.run_id = started.run_id and one.step_slug = started.step_slug
                      offset 0) as state
                     join pgflow.steps as step
                       on step.flow_slug = state.flow_slug and step.step_slug = started.step_slug
                    cross join lateral generate_series(0, state.initial_tasks - 1) as nr
                    order by started.ord, nr) as task
            group by task.flow_slug, task.delay_s
            order by lower(task.flow_slug collate "C"), task.delay_s offset 0) as batch;
end $$;
