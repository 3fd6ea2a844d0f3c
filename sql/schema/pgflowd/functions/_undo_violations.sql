-- _undo_violations(run_ids, max_rows): returns I19 and I22 of these runs; `violations` says what the numbers mean.
-- Called by: run_violations.   Locks: nothing.
create or replace function pgflowd._undo_violations(run_ids uuid[], max_rows int)
returns table (invariant text, flow_slug text, run_id uuid, step_slug text, task_index int,
               detail text)
language plpgsql stable set search_path = '', pg_temp as $$
#variable_conflict use_column
begin
  return query
    select 'I19', run.flow_slug, run.run_id, left_over.step_slug, left_over.task_index,
           'the run is undone, and this task of it is not'
      from pgflowd.runs as run
     cross join lateral (
       select plan.step_slug, task.task_index::int
         from jsonb_each(pgflowd._undo_plan(run.run_id, run.flow_slug, run.undo_generation + 1))
                as plan (step_slug, indexes)
        cross join lateral jsonb_array_elements_text(plan.indexes) as task (task_index)
        limit max_rows) as left_over
     where run.run_id = any (run_ids) and run.undo_state = 'undone'
     limit max_rows;
  return query
    select 'I19', run.flow_slug, run.run_id, attempt.step_slug, attempt.task_index,
           'the attempt went on when the undo of its run had begun'
      from pgflowd.runs as run
      join pgflowd.runs as undo on undo.run_id = pgflowd._undo_run_id(run.run_id, 1)
      join pgflowd.attempts as attempt on attempt.run_id = run.run_id
     where run.run_id = any (run_ids)
       and coalesce(attempt.ended_at > undo.created_at, true)
     limit max_rows;
  return query
    select 'I22', run.flow_slug, run.run_id, null::text, null::int,
           case run.undo_state when 'wanted' then 'it is to be undone, and not due'
                else 'it is being undone, and no run does that' end
      from pgflowd.runs as run
     where run.run_id = any (run_ids) and run.due_at is null
       and (run.undo_state = 'wanted'
            or run.undo_state = 'undoing'
               and not exists (
                 select from pgflow.runs as undo
                  cross join lateral (
                    select one.due_at from pgflowd.runs as one where one.run_id = undo.run_id) as ours
                  where undo.run_id = pgflowd._undo_run_id(run.run_id, run.undo_generation)
                    and (undo.status = 'started' and to_jsonb(undo) -> 'is_watched' = 'true'
                         or ours.due_at is not null)))
     limit max_rows;
  return query
    select 'I22', run.flow_slug, run.run_id, step.step_slug, null::int,
           format('it cannot be undone: flow %s has no step undo_%s',
                  coalesce(undo.flow_slug, 'undo_' || run.flow_slug), step.step_slug)
      from pgflowd.runs as run
     cross join lateral (select pgflowd._undo_flow(run.flow_slug) as flow_slug) as undo
      join pgflowd.step_options as step on step.flow_slug = run.flow_slug and step.undo is not null
     where run.run_id = any (run_ids) and run.undo_state = 'wanted'
       and exists (select from pgflow.step_tasks as task
                    where task.run_id = run.run_id and task.step_slug = step.step_slug)
       and not exists (select from pgflow.steps as known
                        where known.flow_slug = undo.flow_slug
                          and known.step_slug = 'undo_' || step.step_slug)
     limit max_rows;
end $$;
