-- _tunable_options(options): those options of a flow or step of a shape that may be tuned in the
-- database, each with its number or text; of a limit the number of places. Unset ones are left out.
-- Called by: _note_deployed, compare_options, set_option.   Locks: nothing.
create or replace function pgflowd._tunable_options(options jsonb)
returns jsonb language sql immutable set search_path = '', pg_temp as $$
  select jsonb_strip_nulls(jsonb_object_agg(
           known.name, case known.name when 'limit' then options #> '{limit,slots}'
                                       else options -> known.name end))
    from pgflowd._options() as known where not known.is_mode;
$$;
