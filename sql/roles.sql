-- The roles of pgflowd, each with the least rights it needs. Printed by `pgflowd db sql roles`.
-- Execute it in one transaction as a superuser, or as an owner of database and schemas who may
-- create roles, before or after `pgflowd db migrate`; a second time it changes nothing. None of
-- the roles can log in: grant one to the user that needs it.
--
--   pgflow_owner    owns schemas and queues; migrates, deploys and deletes flows
--   pgflow_worker   all that a daemon does: claims, reports, heartbeats, recovery; and no more
--   pgflow_starter  starts, follows, signals, pauses and cancels runs, by functions; reads no table
--   pgflow_viewer   reads everything, for dashboards; changes nothing
--   pgflow_operator does by functions what people do about runs, tasks, flows and schedules; and
--                   reads everything
--
-- PUBLIC loses execute on all functions of pgflow, pgflowd and pgmq. After this script was executed
-- in a database, each `pgflowd db migrate` there gives new objects the same rights.
set local search_path = '';
set local client_min_messages = warning;

do $$
declare
  role text;
begin
  foreach role in array '{pgflow_owner,pgflow_worker,pgflow_starter,pgflow_viewer,pgflow_operator}'::text[] loop
    begin
      if to_regrole(role) is null then
        execute format('create role %I nologin', role);
      end if;
    exception when duplicate_object or unique_violation then
      null;  -- created at this moment, for another database
    end;
  end loop;
  if not pg_has_role('pgflow_owner', 'usage') then  -- not a superuser: become one of the owners
    execute format('grant pgflow_owner to %I', current_user);
  end if;
  grant pgflow_viewer to pgflow_operator;
  execute format('grant create on database %I to pgflow_owner', current_database());
end
$$;

-- Our schemas, and a pgmq that pgflowd installed, belong to pgflow_owner; a schema pgflow that was not
-- adopted yet keeps its owner.
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
         and (relkind = 'c' or not exists (
           select from pg_catalog.pg_depend   -- the sequence of an identity, a member
            where classid = 'pg_class'::regclass and objid = class.oid
              and deptype in ('a', 'i', 'e')))
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

-- Rights on schemas that are not ours are granted instead: pgflow_owner deploys flows there too.
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
    grant usage on schema realtime to pgflow_owner, pgflow_worker;
    revoke usage on schema realtime from pgflow_starter;  -- what it starts sends with the owner's rights
  end if;
end
$$;

-- The owners of the schemas, as doctor schema compares them.
do $$
begin
  if to_regclass('pgflowd.schema_history') is not null then
    update pgflowd.schema_history as history
       set objects = history.objects || (
             select jsonb_object_agg(object, fingerprint)
               from (<fingerprint>) as catalog
              where object like 'schema %' and history.objects ? object)
     where history.objects is not null;
  end if;
end
$$;

-- This right marks a database in which the roles are in use.
grant usage on schema pgflowd to pgflow_worker;

<grants>
