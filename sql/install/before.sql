-- The objects before anything is applied, kept in a setting until the end of this transaction:
-- `known`: those that the last migrate recorded; `present`: all; `functions`: the place of each
-- function's row. A function whose row has another place in the end was applied again.
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
