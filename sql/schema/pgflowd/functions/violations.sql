-- violations(since, max_rows): returns each violation of an invariant, in runs that began within
-- `since`, in the queues, and in what is due. A row is a bug, or a change of tables by hand. Numbered as in the
-- design:
--   I2  a completed run is complete
--   I3  a completed step has exactly the tasks 0 to n-1, all completed
--   I4  a map's output is the array of its tasks' outputs, in order
--   I5  a queued task has its message, or waits
--   I6  a message has its open task
--   I7  the message of a completed task is no longer in the queue
--   I8  no task is given up silently, and none fails without a text
--   I9  a task has at most one live lease
--   I10 a task was completed once at most, and is completed then
--   I15 a wait belongs to a queued task of an open step and run, whose message is not in the queue
--   I16 nothing is due for more than a minute while there is a sweeper
--   I17 no limit has more leases than places
--   I18 a run that waits for another waits for one that is open, and whose end will be told
--   I19 of an undone run each task is undone that its undos are for, and no attempt went on when that began
--   I20 a signal that was given to a task is kept in one of its checkpoints, and no two in the same
--   I21 who has a singleton key has not ended, and who is in line for one waits for another run, or both
--       are due
--   I22 a run that is to be undone is due, or another run is under way that undoes it, and is deployed
--   I23 what belongs to a run has its run
--   I24 no attempt is open whose lease lapsed more than ten minutes ago, while there is a sweeper
-- Called by: operators.   Locks: nothing.
create or replace function pgflowd.violations(since interval default '1 day', max_rows int default 20)
returns table (invariant text, flow_slug text, run_id uuid, step_slug text, task_index int,
               detail text)
language plpgsql stable set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  runs uuid[] := array(select run.run_id from pgflow.runs as run
                        where run.started_at > now() - violations.since);
  first int;
begin
  for first in select generate_series(1, cardinality(runs), 1000) loop
    return query select violation.*
      from pgflowd.run_violations(runs[first : first + 999], max_rows) as violation;
  end loop;
  return query select violation.* from pgflowd.queue_violations(max_rows) as violation;
  return query select violation.* from pgflowd.due_violations(max_rows) as violation;
  return query select violation.* from pgflowd.limit_violations(max_rows) as violation;
  return query select violation.* from pgflowd.orphan_violations(max_rows) as violation;
end $$;
