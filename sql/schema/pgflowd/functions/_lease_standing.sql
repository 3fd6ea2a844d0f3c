-- _lease_standing(task, attempt, run_status, step_status, is_cancelled): returns what a report with this
-- attempt's token may do. live     it may report: the row is open and the task still names it revoked  a
-- retry has sent another message for the task, which is hidden while this lease lasts: the runner must
-- end, and then the task is queued again late     its run or step ended before the report; the result is
-- kept, nothing else changes lost     the task was claimed or reported since; `closed` when its row is
-- closed A started task without a worker is one whose worker's row was deleted; its number tells the
-- rest. No clock decides: a lapsed lease of a task that no worker took is live. A task that ended while
-- its row is open was not ended by its report: if it failed in a cancelled run, by the cancel. The
-- caller holds the locks of run and task, and read the attempt after it had them. The callers' queries
-- inline it, so `is_cancelled`, which is a look-up, is computed only where it matters.
-- Called by: heartbeat, _lock_leased, progress, retry, _with_standings, view attempt_history.   Locks:
-- nothing.
create or replace function pgflowd._lease_standing(
  task pgflow.step_tasks, attempt pgflowd.attempts, run_status text, step_status text,
  is_cancelled boolean)
returns text language sql stable
return case
    when (attempt).ended_at is not null then 'closed'
    when (task).attempts_count is distinct from (attempt).attempt
      or ((task).status <> 'queued' and (task).last_worker_id <> (attempt).worker_id)
      then 'lost'
    when run_status = 'started' and step_status = 'started' then
      case when (task).status not in ('queued', 'started') then 'lost'
           when (task).message_id is distinct from (attempt).msg_id then 'revoked'
           else 'live' end
    when (task).status = 'completed' then 'lost'
    when (task).status = 'failed' and not is_cancelled then 'lost'
    else 'late'
  end;
