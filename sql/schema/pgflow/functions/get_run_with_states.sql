-- get_run_with_states(run_id): returns a run and its step states, as one JSON document.
-- It has all columns of both; no step states give [], an unknown run gives SQL null. An array of
-- rows, since an aggregate of jsonb is slow with many strings (see _is_large).
-- Volatile, so that it sees a run started earlier in the same statement; security definer,
-- so that a role which may read no table can follow its runs.
-- Called by: start_flow_with_states; clients, applications.   Locks: nothing.
create or replace function pgflow.get_run_with_states(run_id uuid)
returns jsonb language plpgsql volatile security definer set search_path = '', pg_temp as $$
begin
  return (
    select jsonb_build_object(
             'run', to_jsonb(run),
             'steps', to_jsonb(array(select state from pgflow.step_states as state
                                      where state.run_id = run.run_id)))
      from pgflow.runs as run
     where run.run_id = get_run_with_states.run_id);
end $$;
