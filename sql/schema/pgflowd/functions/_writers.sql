-- _writers(tables, known): the open transactions of others that have written into one of these tables,
-- by their virtual ids; of `known`, if that is given. Whoever writes holds the table's lock to the
-- end. Each prepared transaction is named, since its id may change and it cannot have notified. So is
-- `snapshot`, if this transaction's own snapshot may be older than the locks that it looks at.
-- Called by: due_writers, export_attempts, writers.   Locks: nothing.
create or replace function pgflowd._writers(tables oid[], known text[])
returns text[] language sql set search_path = '', pg_temp as $$
  select array(
    select distinct held.virtualtransaction
      from pg_catalog.pg_locks as held
     where held.locktype = 'relation' and held.granted and held.mode = 'RowExclusiveLock'
       and held.database = (select oid from pg_catalog.pg_database
                             where datname = pg_catalog.current_database())
       and held.relation = any (_writers.tables)
       and held.pid is distinct from pg_catalog.pg_backend_pid()
       and (_writers.known is null or held.pid is null
            or held.virtualtransaction = any (_writers.known)))
    || case when pg_catalog.current_setting('transaction_isolation') <> 'read committed'
            then '{snapshot}'::text[] else '{}' end;
$$;
