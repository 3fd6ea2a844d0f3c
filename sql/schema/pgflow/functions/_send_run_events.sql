-- _send_run_events(run_ids): sends the event of each run's present status, of those whose events are
-- sent (_followed). An input or output that does not fit into it is left out. Without realtime no
-- payload is built: notifications have none.
-- Called by: _complete_runs, _fail_step, start_flows, _start_runs.   Locks: nothing.
create or replace function pgflow._send_run_events(run_ids uuid[])
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  followed constant uuid[] := pgflow._followed(_send_run_events.run_ids);
  is_sent boolean;
  events record;
begin
  if followed = '{}' then
    return;
  end if;
  is_sent := pgflow._has_realtime();
  select array_agg(run.run_id order by one.ord) as run_ids,
         array_agg('run:' || run.status order by one.ord) as names,
         array_agg(
           case
             when run.status = 'started' and sent.is_cut then json_build_object(
               'event_type', 'run:started', 'run_id', run.run_id,
               'flow_slug', run.flow_slug, 'status', 'started', 'truncated', true,
               'remaining_steps', run.remaining_steps, 'started_at', run.started_at)
             when run.status = 'started' then json_build_object(
               'event_type', 'run:started', 'run_id', run.run_id,
               'flow_slug', run.flow_slug, 'status', 'started', 'input', run.input,
               'remaining_steps', run.remaining_steps, 'started_at', run.started_at)
             when run.status = 'completed' and sent.is_cut then json_build_object(
               'event_type', 'run:completed', 'run_id', run.run_id,
               'flow_slug', run.flow_slug, 'status', 'completed', 'truncated', true,
               'completed_at', run.completed_at)
             when run.status = 'completed' then json_build_object(
               'event_type', 'run:completed', 'run_id', run.run_id,
               'flow_slug', run.flow_slug, 'status', 'completed', 'output', run.output,
               'completed_at', run.completed_at)
             else json_build_object(
               'event_type', 'run:' || run.status, 'run_id', run.run_id,
               'flow_slug', run.flow_slug, 'status', run.status,
               'error_message', run.error_message, 'failed_at', run.failed_at)
           end order by one.ord) filter (where is_sent) as payloads
    into events
    from unnest(_send_run_events.run_ids) with ordinality as one (run_id, ord)
    join pgflow.runs as run on run.run_id = one.run_id
   cross join lateral (
     select case run.status when 'started' then run.input
                            when 'completed' then run.output end as payload) as kept
   cross join lateral (
     select is_sent and pgflow._is_large(kept.payload)
            and not pgflow._fits_event(kept.payload) as is_cut) as sent
   where followed = _send_run_events.run_ids or one.run_id = any(followed);
  if events.run_ids is not null then
    perform pgflow._send_events(events.run_ids, events.names, events.payloads);
  end if;
end $$;
