-- _close_older(flow_slug, msg_ids, worker_id): closes older attempts that are still open, as lost,
-- of tasks that this transaction has just started. Upstream's recovery leaves such attempts.
-- The newest attempt stays open. The caller holds the locks of the tasks that it started; other
-- tasks of these messages are left alone.
-- Called by: claim, task_claim.   Locks: attempts.
create or replace function pgflowd._close_older(flow_slug text, msg_ids bigint[], worker_id uuid)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  update pgflowd.attempts as older set ended_at = now(), outcome = 'lost'
    from pgflow.step_tasks as task
    join pgflowd.attempts as newer
      on newer.run_id = task.run_id and newer.step_slug = task.step_slug
     and newer.task_index = task.task_index and newer.ended_at is null
     and newer.attempt = task.attempts_count and newer.worker_id = task.last_worker_id
     and newer.worker_id = _close_older.worker_id and newer.started_at = now()
   where task.flow_slug = _close_older.flow_slug
     and task.message_id = any(_close_older.msg_ids) and task.status = 'started'
     and older.run_id = task.run_id and older.step_slug = task.step_slug
     and older.task_index = task.task_index and older.ended_at is null
     and older.token < newer.token;
end $$;
