-- _send_event(run_id, event, payload): sends an event of the contract, on a foreign core: through
-- realtime where that is and may be trusted, else as a notification on the run's channel, which has
-- no more than what happened to which run and step, if somebody follows it.
-- Called by: _cancel, _cancel_steps, _send_undo_event.   Locks: nothing.
create or replace function pgflowd._send_event(run_id uuid, event text, payload jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  channel text := 'pgflow:run:' || _send_event.run_id;
begin
  if to_regprocedure('realtime.send(jsonb, text, text, boolean)') is not null
     and pgflowd._untrusted_owner('realtime') is null then
    perform realtime.send(_send_event.payload, _send_event.event, channel, false);
    return;
  end if;
  perform pg_notify(channel, jsonb_strip_nulls(jsonb_build_object(
    'event_type', _send_event.payload -> 'event_type', 'run_id', _send_event.run_id,
    'step_slug', _send_event.payload -> 'step_slug',
    'status', _send_event.payload -> 'status'))::text)
    where pgflowd._followed(array[_send_event.run_id]) <> '{}';
end $$;
