-- _waiting_needs(flow_slug): the different needs for which tasks of a flow wait, as waits have them, each
-- with the number of the wait that is the first of them. It goes from one to the next through the
-- index, so it costs the same however many tasks wait.
-- Called by: look_at_queues, _take_needed, task_claim, undecided_tasks.   Locks: nothing.
create or replace function pgflowd._waiting_needs(flow_slug text)
returns table (needs text, first_nr bigint)
language plpgsql stable set search_path = '', pg_temp
set jit = off set enable_sort = off set enable_bitmapscan = off as $$
begin
  needs := '';
  loop
    select wait.name, wait.nr into needs, first_nr
      from pgflowd.waits as wait
     where wait.flow_slug = _waiting_needs.flow_slug and wait.kind = 'need' and wait.name > _waiting_needs.needs
     order by wait.name, wait.nr limit 1;
    exit when not found;
    return next;
  end loop;
end $$;
