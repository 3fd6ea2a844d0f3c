-- _forget_waits(run_id): deletes the waits of a run in what has ended: the run, or a step of it.
-- Security definer, for callers that may use schema pgflow only.
-- Called by: _close_tasks.   Locks: the waits; the caller holds the run.
create or replace function pgflow._forget_waits(run_id uuid)
returns void language plpgsql security definer set search_path = '', pg_temp as $$
begin
  delete from pgflowd.waits as wait
   using pgflow.runs as run, pgflow.step_states as state
   where wait.run_id = _forget_waits.run_id
     and run.run_id = wait.run_id
     and state.run_id = wait.run_id and state.step_slug = wait.step_slug
     and (run.status <> 'started' or state.status <> 'started');
end $$;
