-- _send_events(run_ids, names, payloads): sends events of runs, in the given order. They go
-- through realtime.send where the platform has it. Elsewhere they are notifications on the same
-- topic. One that would exceed PostgreSQL's limit leaves out input and output, cuts long texts,
-- and has `truncated`; then its receiver reads the row.
-- Called by: _send_run_events, _send_step_events, pgflowd._send_event.   Locks: nothing.
create or replace function pgflow._send_events(run_ids uuid[], names text[], payloads json[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  if to_regprocedure('realtime.send(jsonb, text, text, boolean)') is not null then
    perform realtime.send(event.payload::jsonb, event.name, 'pgflow:run:' || event.run_id, false)
       from unnest(run_ids, names, payloads) with ordinality as event (run_id, name, payload, ord)
      order by event.ord;
  else
    perform pg_notify('pgflow:run:' || event.run_id,
                      case when octet_length(event.payload) <= 7900 then event.payload
                           else (event.payload::jsonb - 'input' - 'output' || '{"truncated": true}'
                                 || jsonb_strip_nulls(jsonb_build_object(
                                      'error_message', left(event.payload::jsonb ->> 'error_message', 1000),
                                      'skip_reason', left(event.payload::jsonb ->> 'skip_reason', 100)))
                                )::text end)
       from unnest(run_ids, payloads::text[]) as event (run_id, payload);
  end if;
end $$;
