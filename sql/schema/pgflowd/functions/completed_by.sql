-- completed_by(worker_id, run_ids): returns how many of these runs were completed by a report of
-- this worker: the last task of a run ends in the transaction that ends the run, at the same
-- moment.
-- Called by: no current release.   Locks: nothing.
create or replace function pgflowd.completed_by(worker_id uuid, run_ids uuid[])
returns bigint language plpgsql stable set search_path = '', pg_temp as $$
begin
  return (
    select count(*)
      from unnest(completed_by.run_ids) as asked (run_id)
      join pgflow.runs as run on run.run_id = asked.run_id
     where run.status = 'completed'
       and exists (select from pgflow.step_tasks as task
                    where task.run_id = run.run_id
                      and task.last_worker_id = completed_by.worker_id
                      and task.completed_at = run.completed_at));
end $$;
