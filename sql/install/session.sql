-- Settings of the one transaction that migrates, and the lock that makes a second one wait: that
-- of the history; before there is one, that of schema pgflowd, or its creation. Each needs the
-- rights of an owner, so nobody else can make a migrate wait.
-- Read committed, so that a migrate that waited for the lock sees what was done meanwhile. Bodies
-- are checked at their first call, since functions call each other in any order; statement_timeout
-- is off, since a migration may take long.
set transaction isolation level read committed;
set local client_encoding = 'UTF8';
set local check_function_bodies = off;
set local client_min_messages = warning;
set local statement_timeout = 0;
set local lock_timeout = '60s';
<printing>
do $$
begin
  if current_setting('search_path') <> '""' then
    raise exception 'this script needs one transaction around it'
      using errcode = 'PF032', hint = 'psql -1 -v ON_ERROR_STOP=1 -f script.sql';
  end if;
  if current_setting('server_version_num')::int / 10000 not between <oldest> and <newest> then
    raise exception 'the server is PostgreSQL %, and pgflowd needs <oldest> to <newest>',
                    current_setting('server_version')
      using errcode = 'PF033', hint = 'use a server of a supported version';
  end if;
  loop
    if to_regclass('pgflowd.schema_history') is not null then
      lock table pgflowd.schema_history in share row exclusive mode;
      exit;
    elsif to_regnamespace('pgflowd') is not null then
      comment on schema pgflowd is 'pgflowd: leases, settings and history beside schema pgflow';
      exit when to_regclass('pgflowd.schema_history') is null;
    else
      begin
        create schema pgflowd;
      exception when unique_violation or duplicate_schema then
        null;  -- another migrate created it while this one waited
      end;
    end if;
  end loop;
exception when insufficient_privilege then
  if to_regnamespace('pgflowd') is null then
    raise;
  end if;  -- the next statements say which right is missing
end
$$;
set local lock_timeout = '10s';

-- Who owns a schema can change what is in it, and so have other code executed with the rights of
-- whoever migrates and calls. So our schemas, and the functions of pgmq, must belong to a superuser,
-- to pgflow_owner, or to a role that the present one has; for a superuser, who has them all, that
-- is itself. owners.sql uses the list again.
do $$
declare
  stranger record;
begin
  perform set_config('pgflowd.trusted', array_agg(role.oid)::text, true)
     from pg_catalog.pg_roles as role
    cross join (select rolsuper from pg_catalog.pg_roles where rolname = current_user) as own
    where role.rolsuper or role.rolname in (current_user, 'pgflow_owner')
       or not own.rolsuper and pg_has_role(role.oid, 'usage');

  select owned.what, owned.owner::regrole::text as owner into stranger
    from (select 'schema ' || nspname, nspowner from pg_catalog.pg_namespace
           where nspname in ('pgflow', 'pgflowd', 'pgmq')
          union all
          select 'function ' || oid::regprocedure, proowner from pg_catalog.pg_proc
           where pronamespace = to_regnamespace('pgmq')) as owned (what, owner)
   where owned.owner <> all (current_setting('pgflowd.trusted')::oid[])
   order by owned.what not like 'schema %', owned.what limit 1;
  if found then
    raise exception '% belongs to role %, which could change what pgflowd executes',
                    stranger.what, stranger.owner
      using errcode = 'PF034',
            hint = format('drop it if it is not yours, or, as a superuser, alter %s owner to %I, or migrate as %s',
                          stranger.what, current_user, stranger.owner);
  end if;
end
$$;
