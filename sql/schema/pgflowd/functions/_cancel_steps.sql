-- _cancel_steps(run_id, error_message): fails a run's started steps, with an event for each.
-- Called by: _cancel.   Locks: nothing new; the caller holds them.
create or replace function pgflowd._cancel_steps(run_id uuid, error_message text)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  step record;
begin
  for step in
    update pgflow.step_states as state
       set status = 'failed', failed_at = greatest(now(), state.started_at),
           error_message = _cancel_steps.error_message
     where state.run_id = _cancel_steps.run_id and state.status = 'started'
    returning state.step_slug, state.failed_at
  loop
    perform pgflowd._send_event(
      _cancel_steps.run_id, 'step:' || step.step_slug || ':failed',
      jsonb_build_object(
        'event_type', 'step:failed', 'run_id', _cancel_steps.run_id,
        'step_slug', step.step_slug, 'status', 'failed',
        'error_message', _cancel_steps.error_message, 'failed_at', step.failed_at));
  end loop;
end $$;
