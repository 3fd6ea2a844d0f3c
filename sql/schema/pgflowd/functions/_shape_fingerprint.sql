-- _shape_fingerprint(shape): the same for two shapes of which pgflow.ensure_flow_compiled says that they
-- are, and another one for others; options do not count.
-- Called by: deploy_version, versions_of.   Locks: nothing.
create or replace function pgflowd._shape_fingerprint(shape jsonb)
returns text language sql immutable set search_path = '', pg_temp as $$
  select md5(jsonb_agg(jsonb_build_array(
           step.value ->> 'slug', coalesce(step.value ->> 'stepType', 'single'),
           (select jsonb_agg(dep.value order by dep.value collate "C")
              from jsonb_array_elements_text(
                     coalesce(nullif(step.value -> 'dependencies', 'null'), '[]')) as dep),
           (select jsonb_agg(coalesce(nullif(step.value -> known.name, 'null'), known.preset)
                             order by known.name) from pgflowd._options() as known where known.is_mode),
           step.value #> '{requiredInputPattern,value}',
           step.value #> '{forbiddenInputPattern,value}') order by step.nr)::text)
    from jsonb_array_elements(_shape_fingerprint.shape -> 'steps') with ordinality as step (value, nr);
$$;
