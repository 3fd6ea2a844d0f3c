-- _keep_returned(elements, outputs): a report whose lease was lost changes nothing of its run. But what
-- its handler has returned is kept with the attempt if the step has an undo, so that it is undone; a
-- run that is undone already is to be undone once more, and one that is being undone when that has
-- ended (_end_undo): who gets its row in pgflowd.runs second sees what the first did.
-- Called by: _close_attempts.
-- Locks: rows in pgflowd.runs (ascending), attempts; the caller holds runs and tasks.
create or replace function pgflowd._keep_returned(elements pgflowd.element[], outputs jsonb[])
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  run record;
begin
  perform from pgflowd.runs as ours
    where ours.undo_state is not null
      and ours.run_id in (select element.run_id from unnest(_keep_returned.elements) as element
                           where element.standing = 'closed')
    order by ours.run_id for no key update;
  update pgflowd.attempts as attempt set output = outputs[element.ord]
    from unnest(_keep_returned.elements) as element
   where element.standing = 'closed' and outputs[element.ord] is not null
     and pgflowd._step_has_undo(element.run_id, element.step_slug)
     and attempt.run_id = element.run_id and attempt.step_slug = element.step_slug
     and attempt.task_index = element.task_index and attempt.token = element.token
     and attempt.outcome in ('lost', 'stalled') and attempt.output is null;
  for run in
    select ours.run_id, ours.flow_slug from pgflowd.runs as ours
     where ours.undo_state = 'undone'
       and ours.run_id in (select element.run_id from unnest(_keep_returned.elements) as element
                            where element.standing = 'closed')
       and pgflowd._undo_plan(ours.run_id, ours.flow_slug, ours.undo_generation + 1) <> '{}'
     order by ours.run_id
  loop
    perform pgflowd._want_undo(run.run_id, run.flow_slug, null, null);
  end loop;
end $$;
