-- _undo_flow(flow_slug): the flow that undoes runs of this one. Both may have versions, each of its own: it is the newest
-- one that undoes the very steps of this flow that have an undo, else the newest that undoes these, too; else the flow that
-- would be the first.
-- Called by: _start_undo, _undo_violations.   Locks: nothing.
create or replace function pgflowd._undo_flow(flow_slug text)
returns text language sql stable set search_path = '' as $$
  with undoable as (
    select array_agg('undo_' || option.step_slug) as steps from pgflowd.step_options as option
     where option.flow_slug = _undo_flow.flow_slug and option.undo is not null)
  select coalesce(
    (select known.flow_slug
       from unnest(pgflowd.flows_of('undo_' || pgflowd._name_of(_undo_flow.flow_slug)))
              with ordinality as known (flow_slug, nr)
      cross join undoable
      cross join lateral (
        select array_agg(step.step_slug) as steps from pgflow.steps as step
         where step.flow_slug = known.flow_slug and starts_with(step.step_slug, 'undo_')) as has
      where has.steps @> undoable.steps
      order by cardinality(has.steps) = cardinality(undoable.steps) desc, known.nr desc limit 1),
    'undo_' || pgflowd._name_of(_undo_flow.flow_slug));
$$;
