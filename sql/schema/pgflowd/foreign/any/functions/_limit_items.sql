-- _limit_items(flow_slug, judged): these tasks as they are: a foreign core knows no limits.
-- Called by: _pass_gates.   Locks: nothing.
create or replace function pgflowd._limit_items(flow_slug text, judged pgflowd.gated[])
returns pgflowd.gated[] language plpgsql set search_path = '', pg_temp as $$
begin
  return judged;
end $$;
