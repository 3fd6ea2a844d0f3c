-- _undo_plan(run_id, flow_slug, generation): returns what is to be undone of a run: for each step with
-- an undo the indexes of its tasks that completed, or whose handler has returned all the same: when
-- its run had ended, its time was up, its worker stopped, or its lease was lost; or that were attempted,
-- if that is what its undo is for. Without those that an earlier undo has undone.
-- Called by: _end_undo, _keep_returned, _start_undo, _undo_violations.   Locks: nothing.
create or replace function pgflowd._undo_plan(run_id uuid, flow_slug text, generation int)
returns jsonb language plpgsql stable set search_path = '', pg_temp as $$
begin
  return (
    select coalesce(jsonb_object_agg(step.step_slug, step.indexes), '{}')
      from (select left_over.step_slug,
                   to_jsonb(array_agg(left_over.task_index order by left_over.task_index)) as indexes
              from (select option.step_slug, task.task_index
                      from pgflowd.step_options as option
                     cross join lateral (
                       select one.task_index, one.status, one.attempts_count
                         from pgflow.step_tasks as one
                        where one.run_id = _undo_plan.run_id and one.step_slug = option.step_slug
                        offset 0) as task
                     where option.flow_slug = _undo_plan.flow_slug and option.undo is not null
                       and (task.status = 'completed'
                            or option.undo = 'attempted' and task.attempts_count > 0
                            or exists (
                              select from pgflowd.attempts as attempt
                               where attempt.run_id = _undo_plan.run_id
                                 and attempt.step_slug = option.step_slug
                                 and attempt.task_index = task.task_index
                                 and (option.undo = 'attempted' or attempt.output is not null)))
                    except
                    select undone.step_slug, undone.task_index
                      from generate_series(1, _undo_plan.generation - 1) as earlier (generation)
                     cross join lateral pgflowd._undo_tasks(
                       pgflowd._undo_run_id(_undo_plan.run_id, earlier.generation)) as undone
                     where undone.state = 'undone') as left_over
             group by left_over.step_slug) as step);
end $$;
