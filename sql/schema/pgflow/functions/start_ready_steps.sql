-- start_ready_steps(run_id): starts the steps of a run that are ready.
-- Called by: _advance, _start_runs, pgflowd._advance.
-- Locks: the run, then its ready states by slug.
create or replace function pgflow.start_ready_steps(run_id uuid)
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  ready text[];
begin
  perform from pgflow.runs as run
    where run.run_id = start_ready_steps.run_id and run.status = 'started' for no key update;
  if not found then
    return;
  end if;
  ready := array(
    select state.step_slug from pgflow.step_states as state
     where state.run_id = start_ready_steps.run_id and state.status = 'created'
       and state.remaining_deps = 0 and state.initial_tasks > 0
     order by state.step_slug for no key update);
  if ready <> '{}' then
    perform pgflow._start_steps(array_fill(start_ready_steps.run_id, array[cardinality(ready)]), ready);
  end if;
end $$;
