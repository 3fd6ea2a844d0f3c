-- _send_step_events(run_ids, step_slugs): sends the event of each step's present status, in the runs
-- whose events are sent (_followed). The event of a step that completed without a task has its start
-- too, since no other event has it. That of a skipped step has the error when attempts ran out, and the
-- flow when a condition or a cascade skipped it. An output that does not fit into its event is left out.
-- Without realtime no payload is built: notifications have none.
-- Called by: cascade_complete_taskless_steps, _complete_tasks, _fail_step, _skip_steps, start_flows,
-- _start_runs, _start_steps.
-- Locks: nothing.
create or replace function pgflow._send_step_events(run_ids uuid[], step_slugs text[])
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  followed constant uuid[] := pgflow._followed(_send_step_events.run_ids);
  is_sent boolean;
  events record;
begin
  if followed = '{}' then
    return;
  end if;
  is_sent := pgflow._has_realtime();
  select array_agg(state.run_id order by one.ord) as run_ids,
         array_agg('step:' || state.step_slug || ':' || state.status order by one.ord) as names,
         array_agg(
           case when state.status = 'started' then json_build_object(
                  'event_type', 'step:started', 'run_id', state.run_id,
                  'step_slug', state.step_slug, 'status', 'started',
                  'started_at', state.started_at, 'remaining_tasks', state.remaining_tasks,
                  'remaining_deps', state.remaining_deps)
                when state.status = 'completed' and state.initial_tasks = 0 then json_build_object(
                  'event_type', 'step:completed', 'run_id', state.run_id,
                  'step_slug', state.step_slug, 'status', 'completed',
                  'output', state.output, 'completed_at', state.completed_at,
                  'started_at', state.started_at, 'remaining_tasks', 0, 'remaining_deps', 0)
                when state.status = 'completed' and pgflow._is_large(state.output)
                     and not pgflow._fits_event(state.output) then json_build_object(
                  'event_type', 'step:completed', 'run_id', state.run_id,
                  'step_slug', state.step_slug, 'status', 'completed',
                  'truncated', true, 'completed_at', state.completed_at)
                when state.status = 'completed' then json_build_object(
                  'event_type', 'step:completed', 'run_id', state.run_id,
                  'step_slug', state.step_slug, 'status', 'completed',
                  'output', state.output, 'completed_at', state.completed_at)
                when state.status = 'failed' then json_build_object(
                  'event_type', 'step:failed', 'run_id', state.run_id,
                  'step_slug', state.step_slug, 'status', 'failed',
                  'error_message', state.error_message, 'failed_at', state.failed_at)
                when state.error_message is null then json_build_object(
                  'event_type', 'step:' || state.status, 'run_id', state.run_id,
                  'step_slug', state.step_slug, 'status', state.status,
                  'skip_reason', state.skip_reason, 'skipped_at', state.skipped_at,
                  'flow_slug', state.flow_slug)
                else json_build_object(
                  'event_type', 'step:' || state.status, 'run_id', state.run_id,
                  'step_slug', state.step_slug, 'status', state.status,
                  'skip_reason', state.skip_reason, 'skipped_at', state.skipped_at,
                  'error_message', state.error_message) end order by one.ord) filter (where is_sent) as payloads
    into events
    from unnest(_send_step_events.run_ids, _send_step_events.step_slugs)
           with ordinality as one (run_id, step_slug, ord)
   cross join lateral (
     select state.* from pgflow.step_states as state
      where state.run_id = one.run_id and state.step_slug = one.step_slug
     offset 0) as state
   where followed = _send_step_events.run_ids or one.run_id = any(followed);
  if events.run_ids is not null then
    perform pgflow._send_events(events.run_ids, events.names, events.payloads);
  end if;
end $$;
