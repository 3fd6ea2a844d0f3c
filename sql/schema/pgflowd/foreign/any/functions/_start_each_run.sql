-- _start_each_run(flow_slug, inputs, run_ids): starts these runs of a flow, in their order.
-- The settings are PostgreSQL's own: process_due has others, which no function of a core may see.
-- Called by: _begin_first, _process_runs, _start_undo.   Locks: what start_flow locks.
create or replace function pgflowd._start_each_run(flow_slug text, inputs jsonb[], run_ids uuid[])
returns void language plpgsql set search_path = '', pg_temp set jit = off
  set plan_cache_mode = auto set enable_seqscan = on set enable_hashjoin = on
  set enable_mergejoin = on set enable_sort = on set enable_bitmapscan = on
  set cpu_tuple_cost = 0.01 set cpu_index_tuple_cost = 0.005 as $$
begin
  for i in 1 .. cardinality(_start_each_run.run_ids) loop
    perform from pgflow.start_flow(_start_each_run.flow_slug, _start_each_run.inputs[i],
                                   _start_each_run.run_ids[i]);
  end loop;
end $$;
