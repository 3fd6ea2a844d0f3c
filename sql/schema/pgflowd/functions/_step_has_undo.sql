-- _step_has_undo(run_id, step_slug): whether this step of the run's flow has an undo.
-- Called by: _close_attempts, _delete_attempts, _keep_returned.   Locks: nothing.
create or replace function pgflowd._step_has_undo(run_id uuid, step_slug text)
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
begin
  return exists (
    select from pgflow.runs as run
      join pgflowd.step_options as option
        on option.flow_slug = run.flow_slug and option.step_slug = _step_has_undo.step_slug
     where run.run_id = _step_has_undo.run_id and option.undo is not null);
end $$;
