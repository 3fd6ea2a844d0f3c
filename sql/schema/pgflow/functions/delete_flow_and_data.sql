-- delete_flow_and_data(p_flow_slug): deletes the flow, its runs and its queue, without a question: our
-- commands ask before they call it. The flow is locked first, then its runs, so that a start or a report
-- under way ends before its rows are deleted (_lock_starts). PF031 when a publication includes tables of
-- pgmq that have no replica identity, which `db migrate` gives only to a pgmq that it installed.
-- Called by: ensure_flow_compiled, pgflowd.delete_flow, pgflowd.prune_versions; workers,
-- operators.   Locks: the definition, the flow, its runs.
create or replace function pgflow.delete_flow_and_data(p_flow_slug text)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  queue constant text := pgflow._queue_name(p_flow_slug);
begin
  perform pgflowd._lock_definition(p_flow_slug);
  perform from pgflow.flows as flow where flow.flow_slug = p_flow_slug for no key update;
  perform from pgflow.runs as run where run.flow_slug = p_flow_slug order by run.run_id
    for no key update;
  perform pgflowd._forget_runs(array(
    select run.run_id from pgflow.runs as run where run.flow_slug = p_flow_slug
    union all
    select run.run_id from pgflowd.runs as run
     where run.flow_slug = p_flow_slug and run.state <> 'started'));
  delete from pgflow.step_tasks as task where task.flow_slug = p_flow_slug;
  delete from pgflow.step_states as state where state.flow_slug = p_flow_slug;
  delete from pgflow.runs as run where run.flow_slug = p_flow_slug;
  delete from pgflow.deps as dep where dep.flow_slug = p_flow_slug;
  delete from pgflow.steps as step where step.flow_slug = p_flow_slug;
  delete from pgflow.flows as flow where flow.flow_slug = p_flow_slug;
  if exists (select from pgmq.meta as known where known.queue_name = queue)
     and not exists (select from pgflow.flows as flow where lower(flow.flow_slug collate "C") = queue) then
    begin
      perform pgmq.drop_queue(queue);
    exception when object_not_in_prerequisite_state then
      raise exception 'flow % cannot be deleted: %', p_flow_slug, sqlerrm using errcode = 'PF031',
        hint = 'give pgmq''s tables a replica identity, such as: alter table pgmq.meta replica '
               'identity using index meta_queue_name_key; or take them out of the publication';
    end;
  end if;
end $$;
