-- task_extend(run_id, step_slug, task_index, lease, actor, token): makes the lease of a task that a person
-- has claimed last for `lease` from now, 30 days at most, and returns when it ends; one that lasts for
-- longer stays. Without a token it is the task that the person has. PF001 for a task that is no longer
-- theirs, or whose run or step has ended; PF002 for an unknown task.
-- Called by: `pgflowd tasks extend`, applications.
-- Locks: the task, its attempt, its message; see heartbeat.
create or replace function pgflowd.task_extend(
  run_id uuid, step_slug text, task_index int, lease interval, actor text,
  token bigint default null)
returns timestamptz language plpgsql security definer set search_path = '', pg_temp as $$
declare
  before timestamptz;
  task_name constant text := pgflowd._task_name(
    task_extend.run_id, task_extend.step_slug, task_extend.task_index);
  held pgflowd.attempts;
begin
  if (task_extend.lease > interval '0' and task_extend.lease <= interval '30 days') is not true then
    raise exception 'a lease of % is not possible', coalesce(task_extend.lease::text, 'null')
      using errcode = '22023', hint = 'ask for more than nothing, and for 30 days at most';
  end if;
  perform from pgflow.step_tasks as task
    where task.run_id = task_extend.run_id and task.step_slug = task_extend.step_slug
      and task.task_index = task_extend.task_index for no key update;
  if not found then
    raise exception 'there is no %', task_name using errcode = 'PF002';
  end if;
  select attempt.* into held
    from pgflowd.attempts as attempt
    join pgflow.workers as worker on worker.worker_id = attempt.worker_id
   where attempt.run_id = task_extend.run_id and attempt.step_slug = task_extend.step_slug
     and attempt.task_index = task_extend.task_index and attempt.ended_at is null
     and case when task_extend.token is null then
           attempt.worker_id = pgflowd._person_id(
             worker.queue_name, left(coalesce(nullif(task_extend.actor, ''), session_user), 200))
         else attempt.token = task_extend.token end
   order by attempt.token desc limit 1;
  before := held.lease_until;
  if not exists (select from pgflowd.heartbeat(held.worker_id, array[held.token], task_extend.lease)
                         as beat where beat.verdict = 'ok') then
    raise exception '% is not theirs', task_name using errcode = 'PF001',
      hint = 'claim it again; `tasks list` shows who has it';
  end if;
  select attempt.lease_until into held.lease_until
    from pgflowd.attempts as attempt where attempt.token = held.token;
  if held.lease_until > before + interval '1 s' then
    perform pgflowd._record_action(
      'task_extend', task_extend.actor, run_id => task_extend.run_id,
      step_slug => task_extend.step_slug, task_index => task_extend.task_index,
      data => jsonb_build_object('token', held.token, 'lease_until', held.lease_until));
  end if;
  return held.lease_until;
end $$;
