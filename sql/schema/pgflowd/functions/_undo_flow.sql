-- _undo_flow(flow_slug): the flow that undoes runs of this one; null if none does. Both may have
-- versions, each of its own: it is the newest one that undoes the very steps of this flow that have an
-- undo, else the newest that undoes these, too. Where neither has a version it is not asked whether it
-- does.
-- Called by: prune_versions, _start_undo, _undo_violations; workers, commands.   Locks: nothing.
create or replace function pgflowd._undo_flow(flow_slug text)
returns text language plpgsql stable set search_path = '', pg_temp as $$
declare
  named constant text := pgflowd._name_of(_undo_flow.flow_slug);
begin
  if not exists (select from pgflowd.versions as known
                  where known.name in (named, 'undo_' || named)) then
    return 'undo_' || named;
  end if;
  return (
    select known.flow_slug
      from unnest(pgflowd.flows_of('undo_' || named)) with ordinality as known (flow_slug, nr)
     where pgflowd._undoes(known.flow_slug, _undo_flow.flow_slug)
     order by (select count(*) from pgflow.steps as step
                where step.flow_slug = known.flow_slug and starts_with(step.step_slug, 'undo_')), known.nr desc
     limit 1);
end $$;
