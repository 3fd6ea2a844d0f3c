-- _followed_options(options): those options of a flow or step of a shape that follow the code, so that
-- nobody tunes them in the database: all that are not in _tunable_options, and what a limit is shared
-- by.
-- Called by: compare_options.   Locks: nothing.
create or replace function pgflowd._followed_options(options jsonb)
returns jsonb language sql immutable set search_path = '', pg_temp as $$
  select coalesce(jsonb_object_agg(one.key, one.value), '{}')
    from jsonb_each(
           coalesce(nullif(_followed_options.options, 'null'), '{}') - 'needs' - 'limit'
           || jsonb_build_object(
                'needs', to_jsonb(string_to_array(
                           pgflowd._joined_needs(_followed_options.options -> 'needs'), ',')),
                'limitName', _followed_options.options #> '{limit,name}',
                'limitPath', _followed_options.options #> '{limit,path}')) as one
   where one.value not in ('null', 'false')
     and one.key not in (select known.name from pgflowd._options() as known where not known.is_mode);
$$;
