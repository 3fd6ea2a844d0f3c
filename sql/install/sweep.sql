-- Drops the functions that an earlier pgflowd installed and this one no longer has: they are
-- recorded as ours and were not applied again. What others added to our schemas stays.
do $$
declare
  before jsonb := current_setting('pgflowd.before');
  stale text;
begin
  for stale in
    select proc.oid::regprocedure::text
      from pg_catalog.pg_proc as proc
     where proc.pronamespace in (to_regnamespace('pgflow'), to_regnamespace('pgflowd'))
       and before -> 'functions' ->> proc.oid::regprocedure::text = proc.ctid::text
       and before -> 'known' ? ('function ' || proc.oid::regprocedure)
  loop
    execute 'drop routine ' || stale;
  end loop;
end
$$;
