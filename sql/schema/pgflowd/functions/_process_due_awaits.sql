-- _process_due_awaits(max_rows): has runs watched for whose end others wait, and tells those about it;
-- returns how many awaits it has dealt with. Where one raises, it is tried again in a minute, and the
-- others are dealt with; a notice, PF013, says which: its detail is an object with run and error.
-- Security definer, since a worker's role may not let a run be watched.
-- Called by: process_due.   Locks: see _due_awaits and _watch_awaited.
create or replace function pgflowd._process_due_awaits(max_rows int)
returns int language plpgsql security definer set search_path = '', pg_temp as $$
declare
  due constant pgflowd.awaits[] := array(
    select one from pgflowd._due_awaits(_process_due_awaits.max_rows) as one);
  one pgflowd.awaits;
begin
  if due = '{}' then
    return 0;
  end if;
  begin
    perform pgflowd._watch_awaited(due);
    perform pgflowd._tell_waiters(due);
  exception when others then
    foreach one in array due loop
      begin
        perform pgflowd._watch_awaited(array[one]);
        perform pgflowd._tell_waiters(array[one]);
      exception when others then
        update pgflowd.awaits as wrong set due_at = now() + interval '1 minute'
         where wrong.awaited = one.awaited and wrong.run_id = one.run_id
           and wrong.step_slug = one.step_slug and wrong.task_index = one.task_index;
        raise notice 'run % cannot be told that run % has ended: %', one.run_id, one.awaited, sqlerrm
          using errcode = 'PF013', detail = jsonb_build_object('run', one.run_id, 'error', sqlerrm);
      end;
    end loop;
  end;
  return cardinality(due);
end $$;
