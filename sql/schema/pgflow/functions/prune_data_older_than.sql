-- prune_data_older_than(retention, flow_slugs): deletes runs that ended before the cutoff with
-- all their rows and messages, old archive rows, and workers whose last heartbeat is older, whose tasks
-- then name none (see _prune_workers). Runs that have not ended, or are being undone, stay, however old, and so do one for whose
-- end somebody waits, and the family of a run that stays: its parent, its children, its undo. The form
-- with an interval alone is the recipe of upstream's users; the other, for some flows or all (null), returns
-- what it deleted. It leaves an action, as pgflowd.prune.
-- It has no default: with one, a call with an interval alone would fit both and be ambiguous.
-- Called by: operators.   Locks: the runs (skips locked), then all that is deleted.
create or replace function pgflow.prune_data_older_than(
  p_retention_interval interval, p_flow_slugs text[])
returns table (deleted_runs bigint, deleted_step_states bigint, deleted_step_tasks bigint,
               deleted_workers bigint)
language plpgsql set search_path = '', pg_temp as $$
declare
  cutoff constant timestamptz := now() - p_retention_interval;
  old_runs uuid[] := array(
    select run.run_id from pgflow.runs as run
     where run.started_at < cutoff and coalesce(run.completed_at, run.failed_at) < cutoff
       and (p_flow_slugs is null or run.flow_slug = any (p_flow_slugs))
       and not pgflowd._is_being_undone(run.run_id)
     order by run.run_id for update skip locked);
  never_begun uuid[] := array(
    select run.run_id from pgflowd.runs as run
     where run.state = 'ended' and coalesce(run.cancelled_at, run.expired_at) < cutoff
       and (p_flow_slugs is null or run.flow_slug = any (p_flow_slugs)));
  queue record;
  candidates uuid[] := old_runs || never_begun;
  needed uuid[] := array(select pgflowd._needed_runs(candidates));
begin
  if needed <> '{}'
     or exists (select from pgflowd.runs as run where run.parent_run_id is not null)
     or exists (select from pgflowd.runs as run where run.undo_of is not null) then
    candidates := array(
      select member.run_id
        from (select family.run_id,
                     bool_and(known.run_id is not null and kept.run_id is null)
                       over (partition by family.first) as is_whole
                from pgflowd._families(candidates) as family
                left join unnest(candidates) as known (run_id) on known.run_id = family.run_id
                left join unnest(needed) as kept (run_id) on kept.run_id = family.run_id) as member
       where member.is_whole);
  end if;
  deleted_runs := cardinality(candidates);
  select gone.step_states, gone.step_tasks into deleted_step_states, deleted_step_tasks
    from pgflowd._delete_runs(candidates) as gone;
  for queue in
    select 'a_' || pgflow._queue_name(flow.flow_slug) as archive
      from pgflow.flows as flow
     where (p_flow_slugs is null or flow.flow_slug = any (p_flow_slugs))
       and to_regclass(format('pgmq.%I', 'a_' || pgflow._queue_name(flow.flow_slug))) is not null
     order by flow.flow_slug
  loop
    execute format('delete from pgmq.%I as archived where archived.archived_at < $1', queue.archive)
      using cutoff;
  end loop;
  deleted_workers := pgflow._prune_workers(cutoff, and_named => true);
  if deleted_runs > 0 then
    perform pgflowd._record_action(
      'prune', null, data => jsonb_strip_nulls(jsonb_build_object(
        'older_than', p_retention_interval, 'flows', p_flow_slugs, 'runs', deleted_runs)));
  end if;
  return next;
end $$;

create or replace function pgflow.prune_data_older_than(retention_interval interval)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  perform from pgflow.prune_data_older_than(prune_data_older_than.retention_interval, null);
end $$;
