-- _clear_stalls(run_id, step_slug): resets how often tasks of a step were recovered, where the core
-- counts that.
-- Called by: _quarantine, _requeue_step, requeue_task.   Locks: nothing new; the caller holds the tasks.
create or replace function pgflowd._clear_stalls(run_id uuid, step_slug text)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  if exists (select from pg_attribute as attribute
              where attribute.attrelid = 'pgflow.step_tasks'::regclass
                and attribute.attname = 'requeued_count' and not attribute.attisdropped) then
    update pgflow.step_tasks as task set requeued_count = 0, permanently_stalled_at = null
     where task.run_id = _clear_stalls.run_id and task.step_slug = _clear_stalls.step_slug
       and task.status = 'queued' and task.requeued_count > 0;
  end if;
end $$;
