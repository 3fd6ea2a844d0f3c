-- _followed(run_ids): returns those of these runs whose events are sent: all through realtime.send,
-- as notifications those that pgflowd._followed returns. One look-up, however many runs there are.
-- Security definer, for callers that may use schema pgflow only.
-- Called by: _send_run_events, _send_step_events, start_flows, pgflowd._send_event.   Locks: nothing.
create or replace function pgflow._followed(run_ids uuid[])
returns uuid[] language plpgsql security definer set search_path = '', pg_temp as $$
begin
  if pgflow._has_realtime() then
    return run_ids;
  end if;
  return pgflowd._followed(run_ids);
end $$;
