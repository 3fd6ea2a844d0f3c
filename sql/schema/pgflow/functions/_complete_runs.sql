-- _complete_runs(run_ids, ended_steps): counts ended steps down, and completes the runs that have
-- none left. A run's output is that of its completed leaves by slug, null if there is none.
-- Called by: _advance, _exhaust_step, maybe_complete_run, start_flows.   Locks: the runs.
create or replace function pgflow._complete_runs(run_ids uuid[], ended_steps int[])
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  completed uuid[];
begin
  with settled as (
    update pgflow.runs as run
       set remaining_steps = run.remaining_steps - ended.steps,
           status = case when ended.last then 'completed' else run.status end,
           completed_at = case when ended.last then greatest(now(), run.started_at) else run.completed_at end,
           output = case when ended.last then
             (select jsonb_object_agg(state.step_slug, state.output)  -- of the leaves, by slug
                from pgflow.step_states as state
               where state.run_id = run.run_id and state.status = 'completed'
                 and not exists (select from pgflow.deps as dep
                                  where dep.flow_slug = state.flow_slug
                                    and dep.dep_slug = state.step_slug))
             else run.output end
      from (select one.run_id, given.steps,
                   one.status = 'started' and one.remaining_steps = given.steps as last
              from unnest(_complete_runs.run_ids, ended_steps) as given (run_id, steps)
              join pgflow.runs as one on one.run_id = given.run_id) as ended
     where run.run_id = ended.run_id and (ended.steps > 0 or ended.last)
    returning run.run_id, ended.last
  )
  select array_agg(settled.run_id) filter (where settled.last) into completed from settled;
  if completed is not null then
    perform pgflow._send_run_events(completed);
  end if;
end $$;
