-- _add_lock(kind, name): makes a row of `locks`, which this transaction then has for itself. False if there is
-- one: another transaction has just made it, or prunes it, and may not have committed. An insert would wait
-- for that one; the millisecond is the shortest that a wait can be.
-- Called by: _lock_name.   Locks: the row.
create or replace function pgflowd._add_lock(kind text, name text)
returns boolean language plpgsql set search_path = '', pg_temp set lock_timeout = '1ms' as $$
begin
  insert into pgflowd.locks (kind, name) values (_add_lock.kind, _add_lock.name)
  on conflict on constraint locks_pkey do nothing;
  return found;
exception when lock_not_available then
  return false;
end $$;
