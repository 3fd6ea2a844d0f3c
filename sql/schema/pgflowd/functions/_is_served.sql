-- _is_served(flow_slug, needs): whether a worker of this flow that is alive, or sleeps, has all that these
-- needs name, as waits have them.
-- Called by: list_inbox, list_tasks, undecided_tasks.   Locks: nothing.
create or replace function pgflowd._is_served(flow_slug text, needs text)
returns boolean language sql stable set search_path = '', pg_temp as $$
  select exists (select from pgflowd.list_caps(_is_served.flow_slug) as worker
                  where string_to_array(_is_served.needs, ',') <@ worker.caps);
$$;
