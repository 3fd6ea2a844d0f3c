-- writers(queue_name, known): the open transactions of others that have written into this queue, by
-- their virtual ids. Called after the commit of `arm` it names all that may have looked for doorbells
-- in vain, since whoever writes holds the table's lock to the end. Called again with what it returned,
-- it names those that are still open; once one is gone, a statement that begins later sees what it
-- has sent. Each prepared transaction is named, since its id may change and it cannot have notified.
-- So is `snapshot`, if this transaction's own snapshot may be older than the locks that it looks at.
-- Called by: workers.   Locks: nothing.
create or replace function pgflowd.writers(queue_name text, known text[] default null)
returns text[] language sql set search_path = '' as $$
  select array(
    select distinct held.virtualtransaction
      from pg_catalog.pg_locks as held
     where held.locktype = 'relation' and held.granted and held.mode = 'RowExclusiveLock'
       and held.database = (select oid from pg_catalog.pg_database
                             where datname = pg_catalog.current_database())
       and held.relation = pg_catalog.to_regclass(
             pg_catalog.format('pgmq.%I', 'q_' || writers.queue_name))
       and held.pid is distinct from pg_catalog.pg_backend_pid()
       and (known is null or held.pid is null or held.virtualtransaction = any(known)))
    || case when pg_catalog.current_setting('transaction_isolation') <> 'read committed'
            then '{snapshot}'::text[] else '{}' end;
$$;
