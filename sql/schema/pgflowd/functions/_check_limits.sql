-- _check_limits(judged): these tasks, those with fate `limit` judged: as many as there are places `go`, if
-- nobody waits for them, and one that is next goes in any case. A key about which another claim decides
-- is `later`. The lock of a key makes "nobody waits" and "now I wait" exclude each other, so nobody
-- overtakes one who waits.
-- Called by: _pass_gates.   Locks: keys of limits, ascending, if they are free; see _try_fill_slots.
create or replace function pgflowd._check_limits(judged pgflowd.gated[])
returns pgflowd.gated[] language plpgsql set search_path = '', pg_temp as $$
declare
  keys text[];
  key record;
begin
  keys := array(
    select asked.name
      from (select one.limit_key as name from unnest(_check_limits.judged) as one
             where one.fate = 'limit' group by 1 order by 1 offset 0) as asked
     where pgflowd._lock_name('limit', asked.name, false));
  -- statements of their own, so that they see what was committed before the locks were free
  for key in
    select counted.limit_key from pgflowd._count_slots(keys) as counted
     where counted.has_waiters
       and counted.taken < (select max(one.most) from unnest(_check_limits.judged) as one
                             where one.limit_key = counted.limit_key)
  loop
    perform pgflowd._try_fill_slots(key.limit_key);
  end loop;
  return (
    select array_agg((one.msg_id, one.run_id, one.step_slug, one.task_index,
             case when one.fate <> 'limit' then one.fate
                  when counted.limit_key is null then 'later'
                  when one.is_next then 'go'
                  when not counted.has_waiters and one.place <= one.most - counted.taken then 'go'
                  else 'limit' end,
             one.needs, one.limit_key, one.most)::pgflowd.gated order by one.msg_id)
      from (select task.*, is_next,
                   row_number() over (partition by task.limit_key, task.fate, is_next
                                      order by task.msg_id) as place
              from unnest(_check_limits.judged) as task
             cross join lateral (
               select exists (select from pgflowd.slots as slot
                               where slot.run_id = task.run_id and slot.step_slug = task.step_slug
                                 and slot.task_index = task.task_index
                                 and slot.limit_key = task.limit_key
                                 and slot.given_at is not null offset 0) as is_next) as given) as one
      left join pgflowd._count_slots(keys) as counted on counted.limit_key = one.limit_key);
end $$;
