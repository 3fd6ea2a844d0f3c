-- _end_waits(run_ids, step_slugs, task_indexes, more): the waits of these tasks are over: each task gets a
-- checkpoint that says so, with `more` in it, unless a signal has written it before; then it is freed.
-- A wait for runs has timed out if one of them has not ended. One that ended before, and waits again
-- since a run was retried, may time out now.
-- Called by: _end_due_waits, task_wake.   Locks: see _free; the caller holds the runs.
create or replace function pgflowd._end_waits(
  run_ids uuid[], step_slugs text[], task_indexes int[], more jsonb default '{}')
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  insert into pgflowd.checkpoints as known (run_id, step_slug, task_index, name, token, data)
  select wait.run_id, wait.step_slug, wait.task_index, wait.checkpoint, 0,
         jsonb_build_object(case when wait.kind = 'sleep' then 'slept'
                                 when wait.kind = 'runs' and not exists (
                                        select from pgflowd.awaits as one
                                         where one.run_id = wait.run_id and one.step_slug = wait.step_slug
                                           and one.task_index = wait.task_index) then 'ended'
                                 else 'timeout' end, true)
           || _end_waits.more
    from unnest(_end_waits.run_ids, _end_waits.step_slugs, _end_waits.task_indexes)
         as given (run_id, step_slug, task_index)
   cross join lateral (
     select one.* from pgflowd.waits as one
      where one.run_id = given.run_id and one.step_slug = given.step_slug
        and one.task_index = given.task_index offset 0) as wait
   where wait.checkpoint is not null
  on conflict on constraint checkpoints_pkey do update
     set data = excluded.data, saved_at = excluded.saved_at where known.data ? 'ended';
  perform pgflowd._free(_end_waits.run_ids, _end_waits.step_slugs, _end_waits.task_indexes);
end $$;
