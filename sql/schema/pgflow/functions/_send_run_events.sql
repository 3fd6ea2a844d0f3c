-- _send_run_events(run_ids): the event that tells the present status of each run.
-- Called by: start_flows, _settle_runs, _fail_run.   Locks: nothing.
create or replace function pgflow._send_run_events(run_ids uuid[])
returns void language sql set search_path = '', pg_temp as $$
  select pgflow._send_events(array_agg(event.run_id order by event.ord),
                             array_agg('run:' || event.status order by event.ord),
                             array_agg(event.payload order by event.ord))
    from (select told.ord, run.run_id, run.status,
                 jsonb_build_object(
                   'event_type', 'run:' || run.status, 'run_id', run.run_id,
                   'flow_slug', run.flow_slug, 'status', run.status)
                 || case run.status
                      when 'started' then jsonb_build_object(
                        'input', run.input, 'remaining_steps', run.remaining_steps,
                        'started_at', run.started_at)
                      when 'completed' then jsonb_build_object(
                        'output', run.output, 'completed_at', run.completed_at)
                      else jsonb_build_object(
                        'error_message', run.error_message, 'failed_at', run.failed_at)
                    end as payload
            from unnest(run_ids) with ordinality as told (run_id, ord)
            join pgflow.runs as run on run.run_id = told.run_id) as event
  having count(*) > 0;
$$;
