-- _has_realtime(): whether events go through realtime.send: the platform has it, and it belongs to a
-- trusted role (_untrusted_owner). Elsewhere they are notifications.
-- Called by: _followed, _send_run_events, _send_step_events, pgflowd._send_event.   Locks: nothing.
create or replace function pgflow._has_realtime()
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
begin
  return to_regnamespace('realtime') is not null  -- costs nothing where there is none
         and to_regprocedure('realtime.send(jsonb, text, text, boolean)') is not null
         and pgflow._untrusted_owner('realtime') is null;
end $$;
