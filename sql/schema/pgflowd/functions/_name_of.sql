-- _name_of(flow_slug): the name of which this flow is a version; else the flow's own.
-- Called by: _define, deploy_version, flow_shape, _found_runs, reschedule, _set_step_options, _start, start,
-- start_child, _start_undo, undecided_tasks, _undo_flow; commands, workers.   Locks: nothing.
create or replace function pgflowd._name_of(flow_slug text)
returns text language sql stable set search_path = '', pg_temp as $$
  select coalesce((select known.name from pgflowd.versions as known
                    where known.flow_slug = _name_of.flow_slug), _name_of.flow_slug);
$$;
