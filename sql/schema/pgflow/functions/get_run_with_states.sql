-- get_run_with_states(run_id): returns a run and its step states, as one JSON document.
-- It has all columns of both; no step states give [], an unknown run gives SQL null. An array of
-- rows, since an aggregate of jsonb is slow with many strings (see _is_large).
-- What is more than a jsonb can hold is left out, and marked by "truncated": true: the large outputs
-- of steps, and that of the run if it does not fit beside the input. The rows have them.
-- Volatile, so that it sees a run started earlier in the same statement; security definer,
-- so that a role which may read no table can follow its runs.
-- Called by: pgflowd.get_run, start_flow_with_states; applications.   Locks: nothing.
create or replace function pgflow.get_run_with_states(run_id uuid)
returns jsonb language plpgsql volatile security definer set search_path = '', pg_temp as $$
declare
  most constant int := 240000000;  -- the other columns are small
  one pgflow.runs;
  state pgflow.step_states;
  run_bytes bigint;
  bytes bigint;
  steps jsonb[] := '{}';
begin
  select run.* into one from pgflow.runs as run where run.run_id = get_run_with_states.run_id;
  if not found then
    return null;
  end if;
  run_bytes := pg_column_size(one.input) + coalesce(pg_column_size(one.output), 0);
  select run_bytes + coalesce(sum(pg_column_size(known.output)), 0) into bytes
    from pgflow.step_states as known where known.run_id = get_run_with_states.run_id;
  if bytes > 1000000 then  -- on disk; the values may be a hundred times larger
    run_bytes := pg_column_size(one.input #> '{}') + coalesce(pg_column_size(one.output #> '{}'), 0);
    select run_bytes + coalesce(sum(pg_column_size(known.output #> '{}')), 0) into bytes
      from pgflow.step_states as known where known.run_id = get_run_with_states.run_id;
  end if;
  if bytes <= most then
    return jsonb_build_object(
      'run', to_jsonb(one),
      'steps', to_jsonb(array(select known from pgflow.step_states as known
                               where known.run_id = get_run_with_states.run_id)));
  end if;
  for state in
    select known.* from pgflow.step_states as known
     where known.run_id = get_run_with_states.run_id
  loop
    if pgflow._is_large(state.output) then
      state.output := null;
      steps := array_append(steps, to_jsonb(state) || '{"truncated": true}');
    else
      steps := array_append(steps, to_jsonb(state));
    end if;
  end loop;
  if run_bytes > most then
    one.output := null;
    return jsonb_build_object('run', to_jsonb(one) || '{"truncated": true}', 'steps', to_jsonb(steps));
  end if;
  return jsonb_build_object('run', to_jsonb(one), 'steps', to_jsonb(steps));
end $$;
