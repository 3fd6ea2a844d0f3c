-- run_status: each run with its status as people know it, its wishes, and who cancelled or paused it;
-- also runs that have not begun, and those that never did. `undo_run_id` is the run that undoes it, or
-- was to; `undo_of` what it undoes itself. `blocked_by` has the runs that must end before this one
-- begins. Its waits are looked up only while it is open, and its steps only if there are waits.
create or replace view pgflowd.run_status as
  select run.run_id, run.flow_slug,
         pgflowd._run_status(run.status, ours.cancelled_at is not null, open.tasks, waiting.tasks,
                             false, ours.expired_at is not null,
                             is_paused => ours.paused_at is not null,
                             is_quarantined => waiting.has_quarantined,
                             undo_state => ours.undo_state) as status,
         run.started_at, coalesce(run.completed_at, run.failed_at) as ended_at,
         ours.cancelled_at, ours.cancelled_by, ours.cancel_reason,
         ours.start_at, ours.expires_at, ours.expired_at, ours.labels,
         ours.singleton_key, ours.created_by, null::uuid[] as blocked_by,
         case when run.status = 'started' then ours.paused_at end as paused_at,
         case when run.status = 'started' then ours.paused_by end as paused_by,
         case when run.status = 'started' then ours.pause_reason end as pause_reason,
         ours.parent_run_id, ours.undo_of, ours.undo_wanted_at, ours.undo_by, ours.undo_reason,
         pgflowd._undo_run_id(run.run_id, ours.undo_generation) as undo_run_id, ours.title
    from pgflow.runs as run
    left join pgflowd.runs as ours on ours.run_id = run.run_id
   cross join lateral (
     select count(*) as tasks, bool_or(wait.kind = 'quarantined') as has_quarantined
       from pgflowd.waits as wait
      where wait.run_id = run.run_id and run.status = 'started') as waiting
   cross join lateral (
     select sum(state.remaining_tasks) as tasks from pgflow.step_states as state
      where state.run_id = run.run_id and state.status = 'started' and waiting.tasks > 0) as open
  union all
  select run.run_id, run.flow_slug,
         pgflowd._run_status(null, run.cancelled_at is not null, null, null, run.state = 'planned',
                             run.expired_at is not null, pgflowd._is_blocked(run)),
         null, coalesce(run.cancelled_at, run.expired_at), run.cancelled_at, run.cancelled_by,
         run.cancel_reason, run.start_at, run.expires_at, run.expired_at, run.labels,
         run.singleton_key, run.created_by,
         case when run.state = 'planned' and run.after_mode is not null
              then array(select one.awaited from pgflowd.awaits as one
                          where one.run_id = run.run_id and one.step_slug = '' order by one.awaited)
              when pgflowd._is_blocked(run)
              then array_remove(array[pgflowd._key_holder(run.singleton_key)], run.run_id) end,
         null, null, null, run.parent_run_id, null, null, null, null, null, run.title
    from pgflowd.runs as run where run.state <> 'started';
