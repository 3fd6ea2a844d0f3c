-- _is_no_map_input(step_slug, output): whether the output of this step is not an array, though a map
-- waits for it. Raises 54000 when it is one of too many elements.
-- Called by: _complete_tasks.   Locks: nothing.
create or replace function pgflow._is_no_map_input(step_slug text, output jsonb)
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
begin
  if jsonb_typeof(output) is distinct from 'array' then
    return true;
  end if;
  perform pgflow._check_map_length(jsonb_array_length(output), 'the output of step ' || step_slug);
  return false;
end $$;
