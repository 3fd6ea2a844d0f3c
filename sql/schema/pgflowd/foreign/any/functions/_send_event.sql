-- _send_event(run_id, event, payload): sends an event of the contract, on a foreign core: through
-- realtime where that is, else as a notification on the run's channel. One that is too long for a
-- notification is cut.
-- Called by: cancel, _cancel_steps.   Locks: nothing.
create or replace function pgflowd._send_event(run_id uuid, event text, payload jsonb)
returns void language plpgsql set search_path = '' as $$
declare
  channel text := 'pgflow:run:' || _send_event.run_id;
begin
  if to_regprocedure('realtime.send(jsonb, text, text, boolean)') is not null then
    perform realtime.send(_send_event.payload, _send_event.event, channel, false);
    return;
  end if;
  if octet_length(_send_event.payload::text) > 7900 then
    payload := _send_event.payload || jsonb_build_object(
      'error_message', left(_send_event.payload ->> 'error_message', 1000),
      'truncated', true);
  end if;
  perform pg_notify(channel, payload::text);
end $$;
