-- _archive(queue_name, msg_ids): archives messages as pgmq.archive does; returns how many there were. One
-- whose id the archive has already is deleted: after a migration that left the sequences behind, ids are
-- given a second time. An older pgmq has no column `last_read_at`.
-- _archive(flow_slugs, message_ids): the same for messages of several flows, queue by queue; nulls
-- are ignored.
-- Called by: _archive_task_message, _close_tasks, _complete_tasks, _fail_tasks, _fail_type_violation,
-- _recover_stalled, pgflowd._cancel_tasks, pgflowd._handle_unstarted, pgflowd._requeue_step,
-- pgflowd.requeue_task.   Locks: the messages (tasks are locked already).
create or replace function pgflow._archive(queue_name text, msg_ids bigint[])
returns bigint language plpgsql set search_path = '', pg_temp as $$
declare
  archive constant text := format('pgmq.%I', 'a_' || _archive.queue_name);
  columns constant text := 'msg_id, read_ct, enqueued_at, vt, message, headers' || case when exists (
    select from pg_attribute as attribute
     where attribute.attrelid = to_regclass(archive) and attribute.attname = 'last_read_at')
    then ', last_read_at' else '' end;
  archived bigint;
begin
  execute format(
    'with gone as (
       delete from pgmq.%1$I where msg_id = any ($1) returning %3$s
     ), kept as (
       insert into %2$s (%3$s) select * from gone on conflict do nothing
     )
     select count(*) from gone', 'q_' || _archive.queue_name, archive, columns)
    into archived using _archive.msg_ids;
  return archived;
end $$;

create or replace function pgflow._archive(flow_slugs text[], message_ids bigint[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  perform pgflow._archive(queue.name, queue.messages)
     from (select pgflow._queue_name(done.flow_slug) as name, array_agg(done.message_id) as messages
             from unnest(_archive.flow_slugs, _archive.message_ids) as done (flow_slug, message_id)
            where done.message_id is not null
            group by 1 order by 1) as queue;
end $$;
