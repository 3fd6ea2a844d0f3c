-- _prune_locks(max_rows): deletes so many rows of `locks` that nobody has locked. Who uses such a name again
-- makes its row again. Those of flows stay while there is the flow, as claims look for them.
-- Called by: prune_expired.   Locks: these rows, skipping locked ones.
create or replace function pgflowd._prune_locks(max_rows int)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  delete from pgflowd.locks as lock
   where lock.ctid = any (array(
     select one.ctid from pgflowd.locks as one
      where one.kind in ('singleton', 'limit')
         or one.kind = 'flow'
            and not exists (select from pgflow.flows as flow
                             where lower(flow.flow_slug collate "C") = one.name)
      limit _prune_locks.max_rows for update skip locked));
end $$;
