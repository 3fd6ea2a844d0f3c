-- _skip_steps(run_id, step_slugs, skip_reasons, error_message): marks steps as skipped, with
-- their open tasks, and sends the events. The caller counts down the dependents.
-- Called by: _cascade_force_skip_steps, _exhaust_step, _skip_unmet.
-- Locks: states, tasks, messages (the run is locked already).
create or replace function pgflow._skip_steps(
  run_id uuid, step_slugs text[], skip_reasons text[], error_message text default null)
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  the_run constant uuid := _skip_steps.run_id;
begin
  update pgflow.step_states as state
     set status = 'skipped', skip_reason = skipped.reason,
         skipped_at = greatest(pgflow._moment(), state.created_at),
         error_message = _skip_steps.error_message, remaining_tasks = null
    from unnest(step_slugs, skip_reasons) as skipped (step_slug, reason)
   where state.run_id = the_run and state.step_slug = skipped.step_slug;
  perform pgflow._close_tasks(the_run, step_slugs);
  perform pgflow._send_step_events(array_fill(the_run, array[cardinality(step_slugs)]), step_slugs);
end $$;
