-- resend(before_page, max_tasks): sends new messages for queued tasks whose message is gone. It looks
-- at the open runs in some pages of their table, those before `before_page`, or the last ones if that
-- is null, and of each step at a thousand tasks, so that it costs the same in a large database; with few
-- max_tasks at fewer pages and tasks.
-- Returns how many messages it sent, and before which page to look next: null, from the end again.
-- A message that is there, read or not, is left alone, and so is a task that waits: the look is
-- repeated under the locks of run and task, which each claim, report and retry takes before it moves,
-- archives or sends a message, or lets a task wait.
-- Called by: recover_stalled; the sweeper.
-- Locks: runs, tasks, skipping locked ones; new messages.
create or replace function pgflowd.resend(
  before_page bigint default null, max_tasks int default 500, out resent int, out next_page bigint)
language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  last_page bigint := coalesce(resend.before_page, pg_relation_size('pgflow.runs')
                               / current_setting('block_size')::bigint);
  lost record;
  free_runs uuid[];
  held record;
begin
  next_page := nullif(greatest(0, last_page - greatest(1, 128::bigint * resend.max_tasks / 500)), 0);
  select array_agg(task.run_id) as runs, array_agg(task.step_slug) as steps,
         array_agg(task.task_index) as indexes
    into lost
    from (select one.*
            from pgflowd._without_message(array(
                   select run.run_id from pgflow.runs as run
                    where run.ctid >= format('(%s,0)', coalesce(next_page, 0))::tid
                      and run.ctid < format('(%s,0)', last_page)::tid
                      and run.status = 'started'), least(1000, 100 * resend.max_tasks)) as one
           limit resend.max_tasks) as task;
  free_runs := array(select run.run_id from pgflow.runs as run
                      where run.run_id = any (lost.runs) and run.status = 'started'
                      order by run.run_id for no key update skip locked);
  select array_agg(free.run_id) as runs, array_agg(free.step_slug) as steps,
         array_agg(free.task_index) as indexes
    into held
    from (select task.run_id, task.step_slug, task.task_index
            from unnest(lost.runs, lost.steps, lost.indexes) as one (run_id, step_slug, task_index)
            join pgflow.step_tasks as task using (run_id, step_slug, task_index)
           where task.run_id = any (free_runs) and task.status = 'queued'
           order by task.run_id, task.step_slug, task.task_index
             for no key update of task skip locked) as free;
  resent := pgflowd._send_lost(held.runs, held.steps, held.indexes);
end $$;
