-- _start_steps(run_ids, step_slugs): starts steps that are ready, in the order given.
-- Called by: _advance, start_ready_steps.   Locks: the states (runs are locked already).
create or replace function pgflow._start_steps(run_ids uuid[], step_slugs text[])
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
begin
  update pgflow.step_states as state
     set status = 'started', started_at = greatest(pgflow._moment(), state.created_at),
         remaining_tasks = state.initial_tasks
    from unnest(run_ids, step_slugs) as ready (run_id, step_slug)
   where state.run_id = ready.run_id and state.step_slug = ready.step_slug;
  perform pgflow._send_step_events(run_ids, step_slugs);
  perform pgflow._create_tasks(run_ids, step_slugs);
end $$;
