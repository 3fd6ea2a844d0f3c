-- Drops functions of schema pgflow that another program has put there, before ours are applied: PostgreSQL
-- replaces none whose result or parameters differ. Who was allowed to execute one of them by name may
-- execute ours of the same name afterwards (adopted.sql). `is_valid_slug` stays, since constraints call
-- it, and is replaced. Where something else depends on one of them, nothing is changed.
do $$
declare
  one record;
begin
  perform set_config('pgflowd.granted', coalesce(jsonb_agg(distinct jsonb_build_object(
            'name', proc.proname, 'role', given.grantee::regrole::text)), '[]')::text, true)
     from pg_catalog.pg_proc as proc
    cross join lateral aclexplode(proc.proacl) as given
    where proc.pronamespace = to_regnamespace('pgflow') and given.grantee not in (0, proc.proowner);
  for one in
    select proc.oid::regprocedure as signature from pg_catalog.pg_proc as proc
     where 'function ' || proc.oid::regprocedure = any (<functions>)
       and proc.proname <> 'is_valid_slug'
  loop
    execute format('drop routine %s', one.signature);
  end loop;
end
$$;
