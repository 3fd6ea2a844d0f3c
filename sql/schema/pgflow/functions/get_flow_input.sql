-- get_flow_input(p_run_id): returns the run's input; null for an unknown run.
-- Called by: workers of other runtimes.   Locks: nothing.
create or replace function pgflow.get_flow_input(p_run_id uuid)
returns jsonb language sql stable set search_path = '', pg_temp as $$
  select run.input from pgflow.runs as run where run.run_id = p_run_id;
$$;
