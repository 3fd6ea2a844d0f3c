-- _send_event(run_id, event, payload): sends an event of the contract the way our core does.
-- Called by: _cancel, _cancel_steps, _send_undo_event.   Locks: nothing.
create or replace function pgflowd._send_event(run_id uuid, event text, payload jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  if pgflow._followed(array[_send_event.run_id]) <> '{}' then
    perform pgflow._send_events(
      array[_send_event.run_id], array[_send_event.event],
      case when pgflow._has_realtime() then array[_send_event.payload::json] end);
  end if;
end $$;
