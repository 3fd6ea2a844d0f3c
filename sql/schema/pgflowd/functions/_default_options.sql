-- _default_options(): the options of a flow whose code sets none, as create_flow gives them.
-- Called by: compare_options, _write_option.   Locks: nothing.
create or replace function pgflowd._default_options()
returns jsonb language sql immutable set search_path = '', pg_temp as $$
  select jsonb_object_agg(known.name, known.preset) from pgflowd._options() as known where known.is_of_flow;
$$;
