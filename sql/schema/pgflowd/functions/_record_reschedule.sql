-- _record_reschedule(before, start_at, expires_at, reason, actor): keeps who has changed the times of a
-- run, and what they were before; nothing if they are the same.
-- Called by: reschedule.   Locks: see _record_action.
create or replace function pgflowd._record_reschedule(
  before pgflowd.runs, start_at timestamptz, expires_at timestamptz, reason text, actor text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  if (before.start_at, before.expires_at)
     is distinct from (_record_reschedule.start_at, _record_reschedule.expires_at) then
    perform pgflowd._record_action(
      'reschedule', _record_reschedule.actor, run_id => before.run_id,
      reason => _record_reschedule.reason,
      data => jsonb_strip_nulls(jsonb_build_object(
        'start_at', _record_reschedule.start_at, 'expires_at', _record_reschedule.expires_at,
        'before', jsonb_build_object('start_at', before.start_at,
                                     'expires_at', before.expires_at))));
  end if;
end $$;
