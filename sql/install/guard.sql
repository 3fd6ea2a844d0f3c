-- Raises unless the database is at the one version that this script starts from.
do $$
declare
  present int;
begin
  if to_regclass('pgflowd.schema_history') is not null then
    select max(history.version) into present
      from pgflowd.schema_history as history where history.name <> 'functions';
  end if;
  if present is distinct from <from> then
    raise exception 'the database is at schema version %, and this script starts from %',
                    coalesce(present::text, 'none'), coalesce((<from>)::text, 'none')
      using errcode = 'PF032', hint = 'print the right one: pgflowd db sql --from VERSION';
  end if;
  if to_regnamespace('pgflow') is not null
     and coalesce(obj_description(to_regnamespace('pgflow'), 'pg_namespace'), '') not like 'pgflowd:%'
     and exists (select from pg_catalog.pg_class where relnamespace = to_regnamespace('pgflow'))
  then
    raise exception 'schema pgflow was installed by another program'
      using errcode = 'PF030', hint = 'pgflowd db migrate --adopt makes it ours';
  end if;
end
$$;
