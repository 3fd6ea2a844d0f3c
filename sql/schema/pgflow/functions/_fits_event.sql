-- _fits_event(payload): whether an input or output is sent with an event: Supabase's Realtime drops
-- what is larger than 3 MB. Asked before the event is built, which takes ten times its memory.
-- Called by: _send_run_events, _send_step_events.   Locks: nothing.
create or replace function pgflow._fits_event(payload jsonb)
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
declare
  most constant int := 3000000;
begin
  return pg_column_size(payload) <= most and pg_column_size(payload #> '{}') <= most;
end $$;
