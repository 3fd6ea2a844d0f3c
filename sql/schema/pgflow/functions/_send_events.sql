-- _send_events(run_ids, names, payloads): sends events of runs, in the given order: through
-- realtime.send if there are payloads. Otherwise they are notifications on the same topic, which
-- every role that may connect can receive: these say only what happened to which run and step, and
-- their receiver reads the row.
-- Called by: _send_run_events, _send_step_events, pgflowd._send_event.   Locks: nothing.
create or replace function pgflow._send_events(run_ids uuid[], names text[], payloads json[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  if payloads is not null then
    perform realtime.send(event.payload::jsonb, event.name, 'pgflow:run:' || event.run_id, false)
       from unnest(run_ids, names, payloads) with ordinality as event (run_id, name, payload, ord)
      order by event.ord;
  else
    perform pg_notify('pgflow:run:' || event.run_id, json_strip_nulls(json_build_object(
              'event_type', event.part[1] || ':' || event.part[cardinality(event.part)],
              'run_id', event.run_id,
              'step_slug', case when event.part[1] = 'step' then event.part[2] end,
              'status', event.part[cardinality(event.part)]))::text)
       from (select run_id, string_to_array(name, ':') as part
               from unnest(run_ids, names) as one (run_id, name)) as event;
  end if;
end $$;
