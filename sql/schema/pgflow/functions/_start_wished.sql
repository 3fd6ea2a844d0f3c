-- _start_wished(flow_slug, inputs, run_ids): starts these runs with what their flow says of each start;
-- false, and nothing is done, for runs of which that was seen to: they have their row in pgflowd.runs.
-- Security definer, as pgflowd.start, and like it refuses ids that keys have (pgflowd._check_reserved).
-- Called by: start_flows.   Locks: see pgflowd.start.
create or replace function pgflow._start_wished(flow_slug text, inputs jsonb[], run_ids uuid[])
returns boolean language plpgsql security definer set search_path = '', pg_temp as $$
declare
  i int;
begin
  if (select count(*) from pgflowd.runs as run
       where run.run_id = any (_start_wished.run_ids)) = cardinality(_start_wished.run_ids) then
    return false;
  end if;
  for i in 1 .. cardinality(_start_wished.run_ids) loop
    perform pgflowd._check_reserved(_start_wished.run_ids[i], null, null);
    perform from pgflowd._start(_start_wished.flow_slug, _start_wished.inputs[i], _start_wished.run_ids[i]);
  end loop;
  return true;
end $$;
revoke execute on function pgflow._start_wished(text, jsonb[], uuid[]) from public;
