-- deploy_version(name, shape, actor, code, take_code): makes the version of this flow that has this
-- shape the current one, and creates it if there is none; returns its flow, and whether it is new.
-- Nothing is deleted: open runs stay in their version. A new version has the options of the code, but
-- for those that were tuned in the version before it, and is paused if that one is. PF002 for an unknown
-- flow, PF024 for a name that is too long for the flow of a version, or that is a version of another
-- one.
-- Called by: workers, commands.   Locks: the definitions of the name and of the new flow.
create or replace function pgflowd.deploy_version(
  name text, shape jsonb, actor text default null, code text default null,
  take_code boolean default false, out flow_slug text, out is_new boolean)
language plpgsql set search_path = '', pg_temp as $$
declare
  wanted constant text := pgflowd._shape_fingerprint(deploy_version.shape);
  before pgflowd.versions;
  number int;
  left_version int;
  changed jsonb;
begin
  perform pgflowd._lock_definition(deploy_version.name);
  perform pgflowd._require_flow(pgflowd.current_flow(deploy_version.name));
  if pgflowd._name_of(deploy_version.name) <> deploy_version.name then
    raise exception 'flow % is a version of flow %', deploy_version.name,
                    pgflowd._name_of(deploy_version.name)
      using errcode = 'PF024', hint = 'give the flow of the code another slug';
  end if;
  insert into pgflowd.versions (name, version, flow_slug, fingerprint, deployed_at, is_current)
  select deploy_version.name, 1, flow.flow_slug,
         pgflowd._shape_fingerprint(pgflowd.flow_shape(flow.flow_slug)), flow.created_at, true
    from pgflow.flows as flow
   where flow.flow_slug = deploy_version.name
     and not exists (select from pgflowd.versions as known
                      where known.name = deploy_version.name);
  select * into before from pgflowd.versions as known
   where known.name = deploy_version.name and known.is_current;

  select known.version, known.flow_slug into number, deploy_version.flow_slug
    from pgflowd.versions as known
   where known.name = deploy_version.name and known.fingerprint = wanted
   order by known.version desc limit 1;
  deploy_version.is_new := not found;
  if deploy_version.is_new then
    select new.number, new.flow_slug into number, deploy_version.flow_slug
      from pgflowd._next_version(deploy_version.name, deploy_version.shape) as new;
    insert into pgflowd.versions (name, version, flow_slug, fingerprint, deployed_by, code)
    values (deploy_version.name, number, deploy_version.flow_slug, wanted,
            coalesce(deploy_version.actor, session_user), deploy_version.code);
    perform pgflowd._define(deploy_version.flow_slug, deploy_version.shape - 'schedules');
    if not deploy_version.take_code then
      perform pgflowd._write_option(deploy_version.flow_slug, tuned.step_slug, tuned.option, tuned.database)
         from pgflowd.compare_options(before.flow_slug, deploy_version.shape) as tuned
        where tuned.is_tuned;
    end if;
    insert into pgflowd.paused_flows (flow_slug, paused_at, paused_by, pause_reason)
    select deploy_version.flow_slug, paused.paused_at, paused.paused_by, paused.pause_reason
      from pgflowd.paused_flows as paused where paused.flow_slug = before.flow_slug;
  else
    changed := nullif(pgflowd._define(deploy_version.flow_slug, deploy_version.shape,
                                      take_code => deploy_version.take_code) -> 'options', '[]');
  end if;
  left_version := pgflowd._set_current(deploy_version.name, number);
  if left_version is not null then
    perform pgflowd._set_schedules(deploy_version.name, deploy_version.shape);
  end if;
  if left_version is not null or changed is not null then
    perform pgflowd._record_action(
      'deploy_version', deploy_version.actor, flow_slug => deploy_version.name,
      data => jsonb_strip_nulls(jsonb_build_object(
        'version', number, 'before', left_version, 'options', changed)));
  end if;
end $$;
