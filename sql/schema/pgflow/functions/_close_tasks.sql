-- _close_tasks(run_id, skipped_steps): archives the messages of a run's open tasks, so that no worker
-- claims them, and ends their waits. With `skipped_steps` only tasks of these steps, and these tasks
-- become skipped; without it the open tasks of a failed run keep their status.
-- Called by: _fail_step, _skip_steps.   Locks: the tasks by slug and index, then the messages and waits.
create or replace function pgflow._close_tasks(run_id uuid, skipped_steps text[] default null)
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  flows text[];
  messages bigint[];
begin
  with open_task as (
    select task.flow_slug, task.step_slug, task.task_index, task.message_id
      from pgflow.step_tasks as task
     where task.run_id = _close_tasks.run_id and task.status in ('queued', 'started')
       and (skipped_steps is null or task.step_slug = any (skipped_steps))
     order by task.step_slug, task.task_index for no key update
  )
  select array_agg(open_task.flow_slug), array_agg(open_task.message_id)
    into flows, messages from open_task;
  perform pgflow._forget_waits(_close_tasks.run_id);
  if messages is null then
    return;
  end if;
  if skipped_steps is not null then
    update pgflow.step_tasks as task set status = 'skipped'
     where task.run_id = _close_tasks.run_id and task.step_slug = any (skipped_steps)
       and task.status in ('queued', 'started');
  end if;
  perform pgflow._archive(flows, messages);
end $$;
