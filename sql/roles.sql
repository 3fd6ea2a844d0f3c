-- The roles of pgflowd, each with the least it needs. Printed by `pgflowd db sql roles`.
-- Run it in one transaction as a superuser, or as an owner of database and schemas who may
-- create roles, before or after `pgflowd db migrate`; running it again changes nothing. None of
-- them can log in: grant one to the user that shall have it.
--
--   pgflow_owner    owns schemas and queues; migrates, deploys and deletes flows
--   pgflow_worker   all a daemon does: claims, reports, beats and recovers; and no more
--   pgflow_starter  starts runs and follows them, by two functions; reads no table
--   pgflow_viewer   reads everything, for dashboards; changes nothing
--
-- Execute is taken from PUBLIC on all functions of pgflow, pgflowd and pgmq. Once this script
-- was run in a database, each `pgflowd db migrate` there gives new objects the same rights.
set local search_path = '';
set local client_min_messages = warning;

do $$
declare
  role text;
begin
  foreach role in array '{pgflow_owner,pgflow_worker,pgflow_starter,pgflow_viewer}'::text[] loop
    begin
      if to_regrole(role) is null then
        execute format('create role %I nologin', role);
      end if;
    exception when duplicate_object or unique_violation then
      null;  -- made at this moment, for another database
    end;
  end loop;
  if not pg_has_role('pgflow_owner', 'usage') then  -- no superuser: be one of the owners
    execute format('grant pgflow_owner to %I', current_user);
  end if;
  execute format('grant create on database %I to pgflow_owner', current_database());
end
$$;

-- Schemas that are ours or will be, and a pgmq that we installed, belong to pgflow_owner; a
-- schema pgflow of somebody else keeps its owner.
do $$
declare
  schema text;
  item text;
begin
  for schema in
    select wanted.name
      from (values ('pgflow', 'pgflowd:%'), ('pgflowd', '%'),
                   ('pgmq', 'pgmq %, installed as plain SQL by pgflowd')) as wanted (name, mark)
      left join pg_catalog.pg_namespace as namespace on namespace.nspname = wanted.name
     where obj_description(namespace.oid, 'pg_namespace') like wanted.mark
        or wanted.name <> 'pgmq'
           and not exists (select from pg_catalog.pg_class where relnamespace = namespace.oid)
  loop
    execute format('create schema if not exists %I', schema);
    execute format('revoke all on schema %I from public', schema);
    execute format('alter schema %I owner to pgflow_owner', schema);
    for item in
      select format('%s %s', case relkind when 'v' then 'view' when 'c' then 'type'
                                          when 'S' then 'sequence' else 'table' end,
                    oid::regclass)
        from pg_catalog.pg_class as class
       where relnamespace = to_regnamespace(schema)
         and relkind in ('r', 'p', 'v', 'c', 'S')
         and not exists (select from pg_catalog.pg_depend   -- an identity's sequence, a member
                          where classid = 'pg_class'::regclass and objid = class.oid
                            and deptype in ('a', 'i', 'e'))
      union all
      select format('routine %s', oid::regprocedure)
        from pg_catalog.pg_proc where pronamespace = to_regnamespace(schema)
      union all
      select format('type %s', oid::regtype)
        from pg_catalog.pg_type
       where typnamespace = to_regnamespace(schema) and typtype in ('d', 'e')
    loop
      execute format('alter %s owner to pgflow_owner', item);
    end loop;
  end loop;
end
$$;

-- What is not ours is granted instead: the owner deploys flows there all the same.
do $$
declare
  schema text;
begin
  for schema in
    select nspname from pg_catalog.pg_namespace
     where nspname in ('pgflow', 'pgmq') and not pg_has_role('pgflow_owner', nspowner, 'usage')
  loop
    execute format('grant usage, create on schema %I to pgflow_owner', schema);
    execute format('grant all on all tables in schema %I to pgflow_owner', schema);
    execute format('grant all on all sequences in schema %I to pgflow_owner', schema);
    execute format('grant execute on all routines in schema %I to pgflow_owner', schema);
  end loop;
  if to_regnamespace('realtime') is not null then
    grant usage on schema realtime to pgflow_owner, pgflow_worker, pgflow_starter;
  end if;
end
$$;

-- From here on these roles are in use in this database: this right is the sign.
grant usage on schema pgflowd to pgflow_worker;

<grants>
