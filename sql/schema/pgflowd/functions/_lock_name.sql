-- _lock_name(kind, name, may_wait): has this row of `locks` for itself until the end of this transaction, and
-- makes it if there is none. False if another transaction has it and this one may not wait. What reads
-- behind it does so in a statement of its own, so that it sees what the one before has done.
-- Called by: _check_limits, _lock_definition, _lock_key, _pass_gates, _try_fill_slots, process_due,
-- prune_expired.
-- Locks: the row.
create or replace function pgflowd._lock_name(kind text, name text, may_wait boolean)
returns boolean language plpgsql set search_path = '', pg_temp as $$
begin
  if not may_wait then
    perform from pgflowd.locks as lock
      where lock.kind = _lock_name.kind and lock.name = _lock_name.name for update skip locked;
    return found
      or not exists (select from pgflowd.locks as lock
                      where lock.kind = _lock_name.kind and lock.name = _lock_name.name)
         and pgflowd._add_lock(_lock_name.kind, _lock_name.name);
  end if;
  loop  -- again only where the row was made, or pruned, while this waited
    perform from pgflowd.locks as lock
      where lock.kind = _lock_name.kind and lock.name = _lock_name.name for update;
    exit when found;
    insert into pgflowd.locks (kind, name) values (_lock_name.kind, _lock_name.name)
    on conflict on constraint locks_pkey do nothing;
    exit when found;
  end loop;
  return true;
end $$;
