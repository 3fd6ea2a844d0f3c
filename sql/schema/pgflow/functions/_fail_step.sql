-- _fail_step(run_id, step_slug, error_message, run_first): fails a step, and its run with it.
-- A failed step keeps its remaining_tasks. The step's event comes before the run's, except for
-- type violations (run_first).
-- Called by: cascade_resolve_conditions, _exhaust_step, _fail_type_violation.
-- Locks: state, tasks, messages (the run is locked already).
create or replace function pgflow._fail_step(
  run_id uuid, step_slug text, error_message text, run_first boolean default false)
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  the_run constant uuid := _fail_step.run_id;
  is_watched boolean;
begin
  update pgflow.step_states as state
     set status = 'failed', failed_at = greatest(now(), state.started_at), error_message = _fail_step.error_message
   where state.run_id = the_run and state.step_slug = _fail_step.step_slug;
  update pgflow.runs as run
     set status = 'failed', failed_at = greatest(now(), run.started_at), error_message = _fail_step.error_message
   where run.run_id = the_run
  returning run.is_watched into is_watched;
  if run_first then
    perform pgflow._send_run_events(array[the_run]);
  end if;
  perform pgflow._send_step_events(array[the_run], array[_fail_step.step_slug]);
  if not run_first then
    perform pgflow._send_run_events(array[the_run]);
  end if;
  perform pgflow._close_tasks(the_run);
  if is_watched then
    perform pgflow._mark_ended(array[the_run]);
  end if;
  perform pgflow._mark_failed(the_run);
end $$;
