-- _has_open_work(flow_slug): whether a run of the flow is under way or planned. Each open run has a
-- message in the queue or a wait, so nothing of the history is read.
-- Called by: list_flows, served_versions; commands, workers.   Locks: nothing.
create or replace function pgflowd._has_open_work(flow_slug text)
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
declare
  queue record;
  found_one boolean;
begin
  if exists (select from pgflowd.waits as wait where wait.flow_slug = _has_open_work.flow_slug)
     or exists (select from pgflowd.runs as run
                 where run.flow_slug = _has_open_work.flow_slug and run.state = 'planned') then
    return true;
  end if;
  for queue in
    select to_regclass(pgflowd._queue_table(known.queue_name)) as messages
      from pgflowd._queues(_has_open_work.flow_slug) as known
  loop
    if queue.messages is not null then
      execute format('select exists (select from %s)', queue.messages) into found_one;
      if found_one then
        return true;
      end if;
    end if;
  end loop;
  return false;
end $$;
