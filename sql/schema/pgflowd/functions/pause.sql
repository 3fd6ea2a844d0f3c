-- pause(run_id, reason, actor): from now on no task of the run begins, and its timers stand still;
-- returns `paused`, or `repeated` when it is paused already. What runs ends normally. Its queued tasks wait
-- for the resume, with what is left of a delay; what else waits keeps what is left until its end; who waits for a
-- place of a limit leaves the line, and keeps its number. What
-- becomes ready meanwhile begins to wait when a claim meets it (_handle_unstarted). A run expires all
-- the same. PF002 for an unknown run, PF003 for one that has ended or not begun.
-- It waits for claims that hold a task, so none begins after `paused_at`.
-- Security definer, so that a role which may touch no table can pause what it started.
-- Called by: clients, commands, operators.
-- Locks: the run, its queued tasks (by slug and index), its row in pgflowd.runs, messages, waits.
create or replace function pgflowd.pause(
  run_id uuid, reason text default null, actor text default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  run record;
  status_now text;
begin
  select known.flow_slug, known.status into run from pgflow.runs as known
   where known.run_id = pause.run_id for no key update;
  if run.status is distinct from 'started' then
    select known.status into status_now from pgflowd.run_status as known
     where known.run_id = pause.run_id;
    if not found then
      raise exception 'there is no run %', pause.run_id using errcode = 'PF002';
    end if;
    raise exception 'run % cannot be paused: it is %', pause.run_id, status_now
      using errcode = 'PF003',
            hint = case when status_now in ('scheduled', 'blocked')
                        then '`pgflowd runs reschedule` postpones a run that has not begun'
                        else 'only a run that has not ended can be paused' end;
  end if;

  if pgflowd._is_paused(pause.run_id) then
    return 'repeated';
  end if;
  perform from pgflow.step_tasks as task
    where task.run_id = pause.run_id and task.status = 'queued'
    order by task.step_slug, task.task_index for no key update;
  update pgflow.runs as known set is_paused = true where known.run_id = pause.run_id;
  insert into pgflowd.runs as known (run_id, flow_slug, paused_at, paused_by, pause_reason)
  values (pause.run_id, run.flow_slug, clock_timestamp(),
          coalesce(nullif(pause.actor, ''), session_user), pause.reason)
  on conflict on constraint runs_pkey do update
     set paused_at = excluded.paused_at, paused_by = excluded.paused_by,
         pause_reason = excluded.pause_reason;
  update pgflowd.waits as wait
     set rest = greatest(wait.due_at - clock_timestamp(), interval '0'), due_at = null
   where wait.run_id = pause.run_id and wait.due_at is not null;
  update pgflowd.waits as wait set is_paused = true
   where wait.run_id = pause.run_id and wait.kind = 'limit';
  perform pgflowd._put_run_aside(pause.run_id);
  perform pgflowd._record_action('pause', pause.actor, run_id => pause.run_id,
                                 reason => pause.reason);
  return 'paused';
end $$;
