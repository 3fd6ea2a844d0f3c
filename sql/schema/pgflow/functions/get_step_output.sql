-- get_step_output(p_run_id, p_step_slug): returns the step's output; null while there is none.
-- Called by: workers of other runtimes.   Locks: nothing.
create or replace function pgflow.get_step_output(p_run_id uuid, p_step_slug text)
returns jsonb language sql stable set search_path = '', pg_temp as $$
  select state.output
    from pgflow.step_states as state
   where state.run_id = p_run_id and state.step_slug = p_step_slug;
$$;
