-- _compare_flow_shapes(p_local, p_db): returns what differs, as texts; steps are compared by
-- position.
-- Called by: ensure_flow_compiled.   Locks: nothing.
create or replace function pgflow._compare_flow_shapes(p_local jsonb, p_db jsonb)
returns text[] language plpgsql stable set search_path = '', pg_temp as $$
declare
  local_steps constant jsonb := coalesce(p_local -> 'steps', '[]');
  db_steps constant jsonb := coalesce(p_db -> 'steps', '[]');
  local_count constant int := jsonb_array_length(local_steps);
  db_count constant int := jsonb_array_length(db_steps);
  differences text[] := '{}';
begin
  if local_count <> db_count then
    differences := differences || format('Step count differs: %s vs %s', local_count, db_count);
  end if;
  for i in 0 .. greatest(local_count, db_count) - 1 loop
    if i >= local_count then
      differences := differences || format(
        'Step at index %s: missing in first shape (second has ''%s'')', i, db_steps -> i ->> 'slug');
    elsif i >= db_count then
      differences := differences || format(
        'Step at index %s: missing in second shape (first has ''%s'')', i, local_steps -> i ->> 'slug');
    else
      differences := differences || pgflow._compare_steps(i, local_steps -> i, db_steps -> i);
    end if;
  end loop;
  return differences;
end $$;
