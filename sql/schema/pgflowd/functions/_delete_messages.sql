-- _delete_messages(run_ids, kind): deletes the messages of the tasks of these runs, those in the queue
-- (`q`) or in its archive (`a`). One that names another run stays: after a migration that left the
-- sequences behind, ids are given a second time.
-- Called by: _delete_runs, delete_run, _prune.   Locks: the messages; the caller holds the runs.
create or replace function pgflowd._delete_messages(run_ids uuid[], kind text)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  queue record;
  messages regclass;
begin
  for queue in
    select task.queue_name as name, array_agg(task.message_id) as message_ids
      from pgflow.step_tasks as task
     where task.run_id = any (_delete_messages.run_ids) and task.message_id is not null
     group by 1 order by 1
  loop
    messages := to_regclass(pgflowd._queue_table(queue.name, _delete_messages.kind));
    continue when messages is null;
    execute format(
      'delete from %s as message where message.msg_id = any ($1)
          and coalesce(message.message ->> ''run_id'' = any ($2), true)', messages)
      using queue.message_ids, _delete_messages.run_ids::text[];
  end loop;
end $$;
