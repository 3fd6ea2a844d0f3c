-- _queue_name(flow_slug): returns the queue of a flow. pgmq names its tables in lower case.
-- Called by: everything that sends, archives or hides messages.   Locks: nothing.
create or replace function pgflow._queue_name(flow_slug text)
returns text language sql immutable parallel safe as $$
  select lower(flow_slug);
$$;
