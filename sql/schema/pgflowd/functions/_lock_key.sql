-- _lock_key(key, may_wait): has a singleton key for itself until the end of this transaction: who lets a run
-- with it begin decides alone. False if another transaction has it and this one may not wait, and in a
-- transaction that reads by an old snapshot, which may not see who has the key.
-- It comes before the lock of a run; who holds a run already does not wait for it.
-- Called by: _due_runs, retry, _start, start_child, tick.   Locks: the key (_lock_name).
create or replace function pgflowd._lock_key(key text, may_wait boolean)
returns boolean language plpgsql set search_path = '', pg_temp as $$
begin
  return current_setting('transaction_isolation') = 'read committed'
     and pgflowd._lock_name('singleton', _lock_key.key, may_wait);
end $$;
