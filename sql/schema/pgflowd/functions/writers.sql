-- writers(queue_name, known): the open transactions of others that have written into this queue, by
-- their virtual ids. Called after the commit of `arm` it names all that may have looked for doorbells
-- in vain. Called again with what it returned, it names those that are still open; once one is gone,
-- a statement that begins later sees what it has sent.
-- Called by: workers.   Locks: nothing.
create or replace function pgflowd.writers(queue_name text, known text[] default null)
returns text[] language sql set search_path = '', pg_temp as $$
  select pgflowd._writers(array[
    to_regclass(pgflowd._queue_table(writers.queue_name))::oid], writers.known);
$$;
