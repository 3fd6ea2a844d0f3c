-- _fits_event(payload): whether an input or output is sent with an event: a notification has room
-- for 7,900 bytes of text, which never are more than 50,000 of jsonb; Supabase's Realtime drops
-- what is larger than 3 MB. Asked before the event is built, which takes ten times its memory.
-- Called by: _send_run_events, _send_step_events.   Locks: nothing.
create or replace function pgflow._fits_event(payload jsonb)
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
declare
  most constant int := case
    when to_regprocedure('realtime.send(jsonb, text, text, boolean)') is null then 50000
    else 3000000 end;
begin
  return pg_column_size(payload) <= most and pg_column_size(payload #> '{}') <= most;
end $$;
