-- _end_awaits(run_ids): those of these runs that have ended: the sweep is to tell whoever waits for one.
-- Returns those of them for which somebody waits who is locked just now, and is to be told later.
-- Called by: _process_runs.   Locks: awaits, skipping locked ones; the caller holds the runs.
create or replace function pgflowd._end_awaits(run_ids uuid[])
returns uuid[] language plpgsql set search_path = '', pg_temp as $$
begin
  update pgflowd.awaits as one set due_at = now(), has_completed = ended.has_completed
    from unnest(_end_awaits.run_ids) as given (run_id)
   cross join lateral (
     select pgflowd._has_completed(given.run_id) as has_completed offset 0) as ended
   cross join lateral (
     select other.* from pgflowd.awaits as other
      where other.awaited = given.run_id and other.has_completed is null
      offset 0 for update skip locked) as free
   where ended.has_completed is not null
     and one.awaited = free.awaited and one.run_id = free.run_id
     and one.step_slug = free.step_slug and one.task_index = free.task_index;
  return array(select one.awaited from pgflowd.awaits as one
                where one.awaited = any (_end_awaits.run_ids) and one.due_at is null
                  and pgflowd._has_completed(one.awaited) is not null);
end $$;
