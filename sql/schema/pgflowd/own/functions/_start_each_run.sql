-- _start_each_run(flow_slug, inputs, run_ids): starts these runs of a flow, in their order.
-- Called by: _begin_first, _process_runs, _start_undo.   Locks: what start_flows locks.
create or replace function pgflowd._start_each_run(flow_slug text, inputs jsonb[], run_ids uuid[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  perform from pgflow.start_flows(_start_each_run.flow_slug, _start_each_run.inputs, _start_each_run.run_ids);
end $$;
