-- _lock_run(run_id, status): locks a run that has this status, and all its open tasks, without
-- waiting. False when one of them is locked: then nothing may be done to the run, because the
-- end of a run waits for its tasks, and a transaction that holds tasks must not wait.
-- Called by: _fail_unstarted, _give_up, _recover_some, _sweep_unleased_task.
-- Locks: the run and its open tasks, or some of them.
create or replace function pgflowd._lock_run(run_id uuid, status text)
returns boolean language plpgsql set search_path = '', pg_temp as $$
begin
  perform from pgflow.runs as run
    where run.run_id = _lock_run.run_id and run.status = _lock_run.status
      for no key update skip locked;
  if not found then
    return false;
  end if;
  return (select count(*) from pgflow.step_tasks as task
           where task.run_id = _lock_run.run_id and task.status in ('queued', 'started'))
       = (select count(*) from (
           select from pgflow.step_tasks as task
            where task.run_id = _lock_run.run_id and task.status in ('queued', 'started')
              for no key update skip locked) as held);
end $$;
