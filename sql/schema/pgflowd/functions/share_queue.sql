-- share_queue(queue_name): lets the roles of sql/roles.sql use that queue, where that script was
-- run. Workers may do all that messages need, and only add to the archive; viewers read both.
-- The owner of schema pgflow, with whose rights clients start runs, may use a queue that another
-- role has made by defining a flow. A queue of another owner is left alone.
-- Called by: watch_queue; db migrate.   Locks: nothing but the tables' rights.
create or replace function pgflowd.share_queue(queue_name text)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  queue regclass := pg_catalog.to_regclass(pgflowd._queue_table(share_queue.queue_name));
  archive regclass := pg_catalog.to_regclass(pgflowd._queue_table(share_queue.queue_name, 'a'));
  owner oid := (select nspowner from pg_catalog.pg_namespace where nspname = 'pgflow');
begin
  if queue is null or not (select pg_catalog.pg_has_role(class.relowner, 'usage')
                             from pg_catalog.pg_class as class where class.oid = queue) then
    return;
  end if;
  if not pg_catalog.has_table_privilege(owner, queue, 'insert') then
    execute pg_catalog.format('grant select, insert, update, delete on %s, %s to %s',
                              queue, archive, owner::regrole);
  end if;
  if pg_catalog.to_regrole('pgflow_worker') is null
     or not pg_catalog.has_schema_privilege('pgflow_worker', 'pgflowd', 'usage')
     or pg_catalog.has_table_privilege('pgflow_worker', queue, 'delete') then
    return;
  end if;
  execute pg_catalog.format('grant select, insert, update, delete on %s to pgflow_worker', queue);
  execute pg_catalog.format('grant select, insert on %s to pgflow_worker', archive);
  execute pg_catalog.format('grant select on %s, %s, %s to pgflow_viewer', queue, archive,
                            pg_catalog.pg_get_serial_sequence(queue::text, 'msg_id'));
end $$;
