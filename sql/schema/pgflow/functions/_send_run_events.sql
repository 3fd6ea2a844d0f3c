-- _send_run_events(run_ids): sends the event of each run's present status.
-- Called by: _complete_runs, _fail_step, start_flows.   Locks: nothing.
create or replace function pgflow._send_run_events(run_ids uuid[])
returns void language plpgsql set search_path = '', pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off as $$
declare
  events record;
begin
  select array_agg(run.run_id order by one.ord) as run_ids,
         array_agg('run:' || run.status order by one.ord) as names,
         array_agg(
           case run.status
             when 'started' then json_build_object(
               'event_type', 'run:started', 'run_id', run.run_id,
               'flow_slug', run.flow_slug, 'status', 'started', 'input', run.input,
               'remaining_steps', run.remaining_steps, 'started_at', run.started_at)
             when 'completed' then json_build_object(
               'event_type', 'run:completed', 'run_id', run.run_id,
               'flow_slug', run.flow_slug, 'status', 'completed', 'output', run.output,
               'completed_at', run.completed_at)
             else json_build_object(
               'event_type', 'run:' || run.status, 'run_id', run.run_id,
               'flow_slug', run.flow_slug, 'status', run.status,
               'error_message', run.error_message, 'failed_at', run.failed_at)
           end order by one.ord) as payloads
    into events
    from unnest(_send_run_events.run_ids) with ordinality as one (run_id, ord)
    join pgflow.runs as run on run.run_id = one.run_id;
  if events.run_ids is not null then
    perform pgflow._send_events(events.run_ids, events.names, events.payloads);
  end if;
end $$;
