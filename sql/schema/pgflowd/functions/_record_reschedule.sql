-- _record_reschedule(before, changed, after, reason, actor): keeps who has changed the times of a run, its
-- singleton key or (if not null) for which runs it waits, and what they were before; nothing if they are
-- the same.
-- Called by: reschedule.   Locks: see _record_action.
create or replace function pgflowd._record_reschedule(
  before pgflowd.runs, changed pgflowd.runs, after uuid[], reason text, actor text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  if (before.start_at, before.expires_at, before.singleton_key)
     is distinct from (changed.start_at, changed.expires_at, changed.singleton_key)
     or _record_reschedule.after is not null then
    perform pgflowd._record_action(
      'reschedule', _record_reschedule.actor, run_id => before.run_id,
      reason => _record_reschedule.reason,
      data => jsonb_strip_nulls(jsonb_build_object(
        'start_at', changed.start_at, 'expires_at', changed.expires_at,
        'singleton_key', changed.singleton_key, 'after', _record_reschedule.after,
        'before', jsonb_build_object(
          'start_at', before.start_at, 'expires_at', before.expires_at,
          'singleton_key', before.singleton_key))));
  end if;
end $$;
