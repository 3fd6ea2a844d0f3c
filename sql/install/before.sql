-- What is there before anything is applied, kept in a setting until the end of this transaction:
-- `known`: what the last migrate recorded; `present`: every object; `functions`: where each
-- function's row lies. A row that lies elsewhere in the end was applied again.
do $$
declare
  known jsonb;
begin
  if to_regclass('pgflowd.schema_history') is not null then
    select history.objects into known
      from pgflowd.schema_history as history where history.objects is not null;
  end if;
  perform set_config('pgflowd.before', jsonb_build_object(
    'known', coalesce(known, '{}'),
    'present', (select coalesce(jsonb_object_agg(object, fingerprint), '{}')
                  from (<fingerprint>) as catalog),
    'functions', (select coalesce(jsonb_object_agg(oid::regprocedure::text, ctid::text), '{}')
                    from pg_catalog.pg_proc
                   where pronamespace in (to_regnamespace('pgflow'), to_regnamespace('pgflowd')))
    )::text, true);
end
$$;
