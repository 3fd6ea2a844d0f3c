-- look_at_queues(queue_names): in how many seconds the next message of each of these queues becomes
-- visible; not more than 0 if one is. No row for a queue without messages, or of a paused flow. One that
-- is gone or cannot be read has 0 too: its worker then makes it again, or tells what is wrong. And so
-- has one of a flow in which a task waits for a worker that has what a worker of this queue has.
-- Called by: the sweeper.   Locks: nothing.
create or replace function pgflowd.look_at_queues(queue_names text[])
returns table (queue_name text, due_in_s double precision)
language plpgsql stable set search_path = '', pg_temp as $$
begin
  foreach queue_name in array look_at_queues.queue_names loop
    continue when exists (select from pgflowd.paused_flows as paused
                           where paused.queue_name = look_at_queues.queue_name);
    begin
      execute format(
        'select extract(epoch from min(message.vt) - clock_timestamp()) from %s as message
          where message.vt < ''infinity''',
        pgflowd._queue_table(queue_name)) into due_in_s;
    exception when undefined_table or insufficient_privilege then
      due_in_s := 0;
    end;
    if exists (
      select from pgflow.workers as worker
        join pgflowd.worker_caps as known on known.worker_id = worker.worker_id
        join pgflow.flows as flow
          on lower(flow.flow_slug collate "C") = lower(worker.queue_name collate "C")
       cross join lateral pgflowd._waiting_needs(flow.flow_slug) as waiting
       where worker.queue_name = look_at_queues.queue_name
         and string_to_array(waiting.needs, ',') <@ known.caps) then
      due_in_s := 0;
    end if;
    if due_in_s is not null then
      return next;
    end if;
  end loop;
end $$;
