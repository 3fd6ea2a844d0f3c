-- flows_of(name): the flows of all versions of this name, oldest first; else the name itself, which may
-- be that of one version. What is asked of a flow by its name is asked of all of them.
-- Called by: delete_flow, flow_buckets, flow_grid, flow_stats, _found_runs, last_run, list_dead, list_limits,
-- _open_tasks, open_tasks, pause_flow, _prune, _prune_leftovers, prune_versions, resume_flow, set_option,
-- _undo_flow; workers, commands.   Locks: nothing.
create or replace function pgflowd.flows_of(name text)
returns text[] language sql stable set search_path = '', pg_temp as $$
  select coalesce(nullif(array(select known.flow_slug from pgflowd.versions as known
                                where known.name = flows_of.name order by known.version), '{}'),
                  array[flows_of.name]);
$$;
