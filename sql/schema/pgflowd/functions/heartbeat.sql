-- heartbeat(worker_id, tokens, lease): extends the leases of a living worker; returns a verdict for
-- each token. `ok`: go on; the lease and the message's visibility now last for `lease`, or longer.
-- `cancel`: run or step has ended, or a retry has revoked the attempt: end the runner. The lease is
-- extended until that is reported: only then the task begins anew, or the run is undone. `lost`:
-- another worker has the task, or the token is unknown.
-- started_at follows when it is older than 20 s, so that no recovery of upstream takes a long
-- task; a task that was queued again and not claimed since is taken back. A task that another
-- transaction has locked is being reported, claimed or recovered: `ok`, the next heartbeat
-- decides.
-- Called by: checkpoint_save, task_extend; workers.
-- Locks: tasks, then their attempts and messages, skipping locked ones: it waits for nothing.
create or replace function pgflowd.heartbeat(
  worker_id uuid, tokens bigint[], lease interval default '30 s')
returns table (token bigint, verdict text) language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  locked bigint[];
  live bigint[];
  ended bigint[];
  revoked bigint[];
  lost bigint[];
  until timestamptz;
  queue record;
begin
  select array_agg(free.token) into locked
    from (select attempt.token
            from pgflowd.attempts as attempt
            join pgflow.step_tasks as task
              on task.run_id = attempt.run_id and task.step_slug = attempt.step_slug
             and task.task_index = attempt.task_index
           where attempt.token = any(heartbeat.tokens)
             and attempt.worker_id = heartbeat.worker_id
             for no key update of task skip locked) as free;

  select array_agg(judged.token) filter (where judged.standing = 'live'),
         array_agg(judged.token) filter (where judged.standing = 'late'),
         array_agg(judged.token) filter (where judged.standing = 'revoked'),
         array_agg(judged.token) filter (where judged.standing = 'lost')
    into live, ended, revoked, lost
    from (select attempt.token,
                 pgflowd._lease_standing(task.*::pgflow.step_tasks, attempt.*, run.status,
                                         state.status,
                                         pgflowd._is_cancelled(run.run_id)) as standing
            from pgflowd.attempts as attempt
           cross join lateral (
             select one.* from pgflow.step_tasks as one
              where one.run_id = attempt.run_id and one.step_slug = attempt.step_slug
                and one.task_index = attempt.task_index offset 0) as task
            join pgflow.runs as run on run.run_id = attempt.run_id
            join pgflow.step_states as state
              on state.run_id = attempt.run_id and state.step_slug = attempt.step_slug
           where attempt.token = any(locked)) as judged;

  ended := ended || revoked;
  live := live || revoked;
  until := clock_timestamp() + heartbeat.lease;
  update pgflow.step_tasks as task
     set status = 'started', started_at = now(), last_worker_id = (
           select worker.worker_id from pgflow.workers as worker
            where worker.worker_id = heartbeat.worker_id)  -- its row may be deleted
    from pgflowd.attempts as attempt
   where attempt.token = any(live)
     and task.run_id = attempt.run_id and task.step_slug = attempt.step_slug
     and task.task_index = attempt.task_index
     and (task.status = 'queued' or task.started_at < now() - interval '20 s');
  update pgflowd.attempts as attempt set lease_until = until
   where attempt.token = any(live || ended) and attempt.lease_until < until;
  update pgflowd.attempts as attempt set ended_at = now(), outcome = 'lost'
   where attempt.token = any(lost);
  for queue in
    select task.queue_name as name, array_agg(task.message_id) as msg_ids
      from pgflowd.attempts as attempt
      join pgflow.step_tasks as task
        on task.run_id = attempt.run_id and task.step_slug = attempt.step_slug
       and task.task_index = attempt.task_index
     where attempt.token = any(live) group by 1 order by 1
  loop
    perform pgflowd._make_visible(queue.name, queue.msg_ids, until, extend => true);
  end loop;

  return query
    select asked.token,
           case when asked.token = any(ended) then 'cancel'
                when asked.token = any(live) then 'ok'
                when asked.token = any(locked) then 'lost'
                when exists (select from pgflowd.attempts as attempt
                              where attempt.token = asked.token and attempt.ended_at is null
                                and attempt.worker_id = heartbeat.worker_id) then 'ok'
                else 'lost'
           end
      from unnest(heartbeat.tokens) as asked (token);
end $$;
