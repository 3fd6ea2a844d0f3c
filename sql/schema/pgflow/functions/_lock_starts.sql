-- _lock_starts(flow_slug): keeps the flow from being deleted until the end of this transaction; waits
-- for a deletion under way. Starts share the lock. It is one of a row, since anybody may hold an
-- advisory lock; `for share` and not `for key share`, which reports take by their foreign keys, and
-- which a deletion therefore lets pass. Returns what each start has from its input, null for most flows.
-- Security definer, since a row lock needs the right to update.
-- Called by: start_flows, pgflowd._check_input.   Locks: the flow.
create or replace function pgflow._lock_starts(flow_slug text)
returns jsonb language plpgsql security definer set search_path = '', pg_temp as $$
declare
  found_starts jsonb;
begin
  select flow.starts into found_starts
    from pgflow.flows as flow where flow.flow_slug = _lock_starts.flow_slug for share;
  if not found then  -- deleted, and perhaps created again, while this waited
    select flow.starts into found_starts
      from pgflow.flows as flow where flow.flow_slug = _lock_starts.flow_slug for share;
  end if;
  return found_starts;
end $$;
