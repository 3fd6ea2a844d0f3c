-- _try_fill_slots(limit_key): as _fill_slots, but false while another transaction decides about this limit,
-- and where it raises: then places that reports have freed are looked at again in a minute, and a notice
-- says why, PF013: its detail is an object with the run, step and task_index of one who waits, and the error.
-- Called by: _check_limits, _pass_slots, _write_option, refill_limits.
-- Locks: the key of the limit, if it is free; see _fill_slots.
create or replace function pgflowd._try_fill_slots(limit_key text)
returns boolean language plpgsql set search_path = '', pg_temp as $$
declare
  held record;
begin
  if not pgflowd._lock_name('limit', _try_fill_slots.limit_key, false) then
    return false;
  end if;
  begin
    return pgflowd._fill_slots(_try_fill_slots.limit_key);
  exception when others then
    update pgflowd.slots as slot set free_at = now() + interval '1 minute'
     where slot.limit_key = _try_fill_slots.limit_key and slot.free_at is not null;
    select wait.run_id, wait.step_slug, wait.task_index into held
      from pgflowd._next_waiter(_try_fill_slots.limit_key) as wait;
    raise notice 'a place of limit % cannot be passed on: %', _try_fill_slots.limit_key, sqlerrm
      using errcode = 'PF013', detail = jsonb_build_object(
        'run', held.run_id, 'step', held.step_slug, 'task_index', held.task_index, 'error', sqlerrm);
    return false;
  end;
end $$;
