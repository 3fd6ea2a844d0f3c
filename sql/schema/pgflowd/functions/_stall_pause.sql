-- _stall_pause(run_id, step_slug, task_index, times): for how long a task is left alone that has stalled so
-- many times in a row; null for the first two: most deaths are not the task's. Then 2 s, 4, 8 and so
-- on, 60 at most, times 0.5 to 1.5 by a hash of its key: tasks that died together with the one that ended
-- their worker come apart from it, succeed, and count from nothing.
-- Called by: _requeue_stalled.   Locks: nothing.
create or replace function pgflowd._stall_pause(
  run_id uuid, step_slug text, task_index int, times int)
returns interval language sql immutable set search_path = '', pg_temp as $$
  select case when times > 2 then make_interval(secs =>
    least(60, 2.0 ^ least(times - 2, 6))
    * (0.5 + (hashtextextended(concat(run_id, '/', step_slug, '#', task_index), 0) & 1023) / 1023.0))
  end;
$$;
