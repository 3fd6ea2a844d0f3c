-- _key_holder(key, with_scheduled): the run that has a singleton key, else the first in line for it;
-- with those whose time has not come, or that wait for other runs, if asked. Null if there is none.
-- Called by: retry, _start, view run_status.   Locks: nothing.
create or replace function pgflowd._key_holder(key text, with_scheduled boolean default false)
returns uuid language plpgsql stable set search_path = '', pg_temp as $$
begin
  return coalesce(
    (select run.run_id from pgflowd.runs as run
      where run.singleton_key = _key_holder.key and run.holds_key),
    (select run.run_id from pgflowd.runs as run
      where run.singleton_key = _key_holder.key and run.state = 'planned'
        and (_key_holder.with_scheduled
             or run.after_mode is null and coalesce(run.start_at <= now(), true))
      order by run.created_at, run.run_id limit 1));
end $$;
