-- _create_queue(flow_slug): creates the flow's queue unless it exists, its index of what was read,
-- by which _started_tasks finds what is at work, and its notify trigger. A queue of another owner
-- gets no index.
-- Called by: create_flow; db migrate.   Locks: pgmq's lock of the queue name; the queue's table, once.
create or replace function pgflow._create_queue(flow_slug text)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  queue constant text := pgflow._queue_name(flow_slug);
begin
  if length(queue) > 47 then
    raise exception 'flow slug % has % characters, and the name of its queue may have 47',
                    flow_slug, length(queue)
      using errcode = 'name_too_long', hint = 'Choose a slug of at most 47 characters.';
  end if;
  if not exists (select from pgmq.meta as known where known.queue_name = queue) then
    perform pgmq.create(queue);
  end if;
  if to_regclass(format('pgmq.%I', 'q_' || queue || '_read_idx')) is null
     and (select pg_has_role(class.relowner, 'usage') from pg_catalog.pg_class as class
           where class.oid = to_regclass(format('pgmq.%I', 'q_' || queue))) then
    execute format('create index %I on pgmq.%I (msg_id) where read_ct > 0',
                   'q_' || queue || '_read_idx', 'q_' || queue);
  end if;
  perform pgflowd.watch_queue(queue);
end $$;
