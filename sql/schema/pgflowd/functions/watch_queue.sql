-- watch_queue(queue_name): from now on each insert into that queue notifies channel `pgflowd`.
-- Idempotent: a queue that is watched already is not touched, so no lock on its table is taken.
-- Roles that roles.sql made are given their rights on it.
-- Queue tables are small and busy, so the first call also makes autovacuum visit them often. A
-- partitioned one cannot have such settings; its partitions are left as they are.
-- Called by: pgflow._create_queue; workers, commands.   Locks: the queue's table, once.
create or replace function pgflowd.watch_queue(queue_name text)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  queue regclass := pgflowd._queue_table(watch_queue.queue_name);
begin
  perform pgflowd.share_queue(watch_queue.queue_name);
  if exists (select from pg_trigger as trigger
              where trigger.tgrelid = queue and trigger.tgname = 'pgflowd_notify') then
    return;
  end if;
  execute format(
    'create or replace trigger pgflowd_notify after insert on %s
       for each statement execute function pgflowd.notify_queue()', queue);
  if exists (select from pg_class as class where class.oid = queue and class.relkind = 'r') then
    execute format(
      'alter table %s set (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01)', queue);
  end if;
end $$;
