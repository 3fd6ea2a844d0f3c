-- What was applied belongs to a trusted role (session.sql says which). Where the schemas belong to
-- pgflow_owner, so does what this role has just created in them, and a pgmq that we installed: the
-- same as if roles.sql had been executed afterwards.
do $$
declare
  before constant jsonb := current_setting('pgflowd.before');
  own_id constant oid := (select oid from pg_catalog.pg_roles where rolname = current_user);
  keeper constant oid := (select nspowner from pg_catalog.pg_namespace
                           where nspname = 'pgflowd' and nspowner = to_regrole('pgflow_owner'));
  item record;
begin
  for item in
    with thing (schema, what, owner, is_applied) as (
      select class.relnamespace,
             case relkind when 'v' then 'view ' when 'c' then 'type ' when 'S' then 'sequence '
                          else 'table ' end || class.oid::regclass, class.relowner, false
        from pg_catalog.pg_class as class
       where relkind in ('r', 'p', 'v', 'c', 'S')
         and (relkind = 'c' or not exists (
           select from pg_catalog.pg_depend   -- the sequence of an identity, a member
            where classid = 'pg_class'::regclass and objid = class.oid
              and deptype in ('a', 'i', 'e')))
      union all
      select pronamespace, 'function ' || oid::regprocedure, proowner,
             before -> 'functions' ->> oid::regprocedure::text is distinct from ctid::text
        from pg_catalog.pg_proc where prokind in ('f', 'w')
      union all
      select typnamespace, 'type ' || oid::regtype, typowner, false
        from pg_catalog.pg_type where typtype in ('d', 'e')
      union all
      select oid, 'schema ' || nspname, nspowner, true from pg_catalog.pg_namespace
    )
    select thing.what, thing.owner, thing.owner::regrole::text as owner_name
      from thing
      join pg_catalog.pg_namespace as schema on schema.oid = thing.schema
     where case
             when schema.nspname = 'pgmq' then
               coalesce(obj_description(schema.oid, 'pg_namespace')
                        like 'pgmq %, installed as plain SQL by pgflowd', false)
             when schema.nspname in ('pgflow', 'pgflowd') then
               thing.is_applied or not before -> 'present' ? thing.what
               or before -> 'known' ? thing.what
             else false end
     order by thing.what like 'schema %' desc
  loop
    if item.owner <> all (current_setting('pgflowd.trusted')::oid[])
       and item.what !~ ' pgmq\.[aq]_' then  -- of a flow that another role has defined
      raise exception '% belongs to role %, which could change what pgflowd executes',
                      item.what, item.owner_name
        using errcode = 'PF034',
              hint = format('as a superuser: alter %s owner to %I', item.what, current_user);
    elsif item.owner = own_id and own_id <> keeper and pg_has_role(keeper, 'member') then
      execute format('alter %s owner to pgflow_owner', item.what);
    end if;
  end loop;
end
$$;
