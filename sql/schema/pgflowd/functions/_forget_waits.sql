-- _forget_waits(run_ids): deletes the waits of these runs in what has ended: a run, or a step of it.
-- Called by: pgflow._forget_waits.   Locks: the waits; the caller holds the runs.
create or replace function pgflowd._forget_waits(run_ids uuid[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  delete from pgflowd.waits as wait
   using pgflow.runs as run, pgflow.step_states as state
   where wait.run_id = any (_forget_waits.run_ids)
     and run.run_id = wait.run_id
     and state.run_id = wait.run_id and state.step_slug = wait.step_slug
     and (run.status <> 'started' or state.status <> 'started');
end $$;
