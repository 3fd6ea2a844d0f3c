-- _start_labels(paths, input): returns the labels that an input gives a run, by their paths; those whose
-- path leads nowhere are left out.
-- Called by: _start.   Locks: nothing.
create or replace function pgflowd._start_labels(paths jsonb, input jsonb)
returns jsonb language sql immutable set search_path = '', pg_temp as $$
  select coalesce(jsonb_object_agg(label.key, pgflowd._input_part(_start_labels.input, label.value))
                    filter (where pgflowd._input_part(_start_labels.input, label.value) is not null), '{}')
    from jsonb_each_text(_start_labels.paths) as label;
$$;
