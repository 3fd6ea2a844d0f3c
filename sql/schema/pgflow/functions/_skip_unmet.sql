-- _skip_unmet(run_id, step_slugs): skips steps whose condition is not met; their dependents go on
-- without them.
-- Called by: cascade_resolve_conditions.   Locks: states (the run is locked already).
create or replace function pgflow._skip_unmet(run_id uuid, step_slugs text[])
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  skipped constant int := cardinality(step_slugs);
begin
  perform pgflow._skip_steps(
    _skip_unmet.run_id, step_slugs, array_fill('condition_unmet'::text, array[skipped]));
  perform pgflow._count_down(array_fill(_skip_unmet.run_id, array[skipped]), step_slugs);
  update pgflow.runs as run set remaining_steps = run.remaining_steps - skipped
   where run.run_id = _skip_unmet.run_id;
end $$;
