-- _due_tasks(run_id): how many tasks a sweep creates, ends or undoes that does what is due for this run: the
-- elements of its root maps, its open tasks once it has expired, all of them if it is to be undone or has
-- undone another; else one.
-- Called by: _first_runs.   Locks: nothing.
create or replace function pgflowd._due_tasks(run_id uuid)
returns bigint language plpgsql stable set search_path = '', pg_temp as $$
declare
  run pgflowd.runs;
begin
  select one.* into run from pgflowd.runs as one where one.run_id = _due_tasks.run_id;
  if run.state = 'planned' and jsonb_typeof(run.input) = 'array' then
    return 1 + jsonb_array_length(run.input) * (
      select count(*) from pgflow.steps as step
       where step.flow_slug = run.flow_slug and step.deps_count = 0 and step.step_type = 'map');
  elsif run.state = 'started' and run.expires_at <= now()
        or run.undo_state = 'wanted' or run.undo_of is not null then
    return 1 + coalesce((select sum(coalesce(state.initial_tasks, 0)) from pgflow.step_states as state
                          where state.run_id = _due_tasks.run_id), 0);
  end if;
  return 1;
end $$;
