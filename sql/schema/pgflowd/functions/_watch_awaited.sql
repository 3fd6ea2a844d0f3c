-- _watch_awaited(due): of those of these awaits whose run is not known to have ended: from now on its end is
-- marked, and the row is due then; or it has ended already, or is gone, and who waits is told.
-- Called by: _process_due_awaits.   Locks: see _watch_runs; the caller holds the awaits and the awaited runs.
create or replace function pgflowd._watch_awaited(due pgflowd.awaits[])
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  open constant uuid[] := array(
    select one.awaited from unnest(due) as one
     where one.has_completed is null and pgflowd._has_completed(one.awaited) is null);
begin
  perform pgflowd._watch_runs(open) where open <> '{}';
  update pgflowd.awaits as one
     set due_at = case when ended.has_completed is not null then now() end,
         has_completed = ended.has_completed
    from unnest(due) as given
   cross join lateral (
     select case when given.awaited <> all (open)
                 then coalesce(pgflowd._has_completed(given.awaited), false) end as has_completed
       offset 0) as ended
   where given.has_completed is null
     and one.awaited = given.awaited and one.run_id = given.run_id
     and one.step_slug = given.step_slug and one.task_index = given.task_index;
end $$;
