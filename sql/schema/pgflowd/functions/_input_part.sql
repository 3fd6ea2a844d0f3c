-- _input_part(input, path): returns the text of a scalar of the input at a path such as run.items[0].name;
-- null for anything else.
-- Called by: _fill_template, _start.   Locks: nothing.
create or replace function pgflowd._input_part(input jsonb, path text)
returns text language sql immutable set search_path = '', pg_temp as $$
  select case when jsonb_typeof(one.value) in ('string', 'number', 'boolean') then one.value #>> '{}' end
    from (select _input_part.input #> (array(
            select step[1] from regexp_matches(_input_part.path, '[^].[]+', 'g') as step))[2:] as value) as one;
$$;
