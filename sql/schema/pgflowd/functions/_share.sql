-- _share(progress): how much of a task is done by what its handler has told, from 0 to 1; null if that
-- does not say of how much. It is rounded, since a float8 cannot be as small as a numeric.
-- Called by: _listed_runs, run_steps.   Locks: nothing.
create or replace function pgflowd._share(progress jsonb)
returns float8 language sql immutable
return case when jsonb_typeof(progress -> 'done') = 'number'
                   and jsonb_typeof(progress -> 'total') = 'number'
                   and (progress ->> 'total')::numeric > 0
              then round(least(1, greatest(0, (progress ->> 'done')::numeric
                                              / (progress ->> 'total')::numeric)), 9) end::float8;
