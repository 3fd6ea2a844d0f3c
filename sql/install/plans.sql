-- Settings of the functions that workers, the sweeper, commands and applications call. They hold
-- for everything such a function calls, so only the outermost ones have them: each costs time.
-- Plans are kept, and a table that was empty when its plan was made may have a million rows before
-- it is analysed. So plans must not depend on statistics: sequential scans, hash and merge joins
-- are off, and a row that is read without need costs more than a look-up by its key. No call gains
-- by compilation, which takes tenths of a second.
-- A claim, and a start of many runs, join what was just read and written: thousands of rows without an index;
-- only below it joins are off. A status counts to a limit, and a bitmap would read beyond it.
-- What looks into a long queue for the few messages at work starts no parallel workers.
-- Functions that were not applied again are left as they are, so that the sweep knows them.
do $$
declare
  before constant jsonb := current_setting('pgflowd.before')::jsonb -> 'functions';
  by_keys constant text[] := '{
    pgflowd.active_runs, pgflowd.add_minute, pgflowd.arm, pgflowd.cancellations, pgflowd.checkpoint_drop,
    pgflowd.checkpoint_load, pgflowd.checkpoint_save, pgflowd.completed_by, pgflowd.count_runs,
    pgflowd.daemons, pgflowd.delete_run,
    pgflowd.disarm,
    pgflowd.due_late, pgflowd.due_schedules, pgflowd.due_writers, pgflowd.find_runs, pgflowd.flow_buckets, pgflowd.flow_grid,
    pgflowd.flow_stats,
    pgflowd.flows_of, pgflowd.follow, pgflowd.heartbeat,
    pgflowd.keep_last, pgflowd.kept_output, pgflowd.list_caps, pgflowd.list_actions, pgflowd.list_dead, pgflowd.list_checkpoints, pgflowd.list_children, pgflowd.list_flows, pgflowd.list_inbox,
    pgflowd.list_runs,
    pgflowd.list_signals, pgflowd.list_tasks, pgflowd.look_at_queues, pgflowd.news, pgflowd.pause,
    pgflowd.postpone_due, pgflowd.postpone_schedule, pgflowd.postpone_stalled, pgflowd.overview_counts, pgflowd.process_due, pgflowd.progress, pgflowd.prune, pgflowd.prune_expired, pgflowd.prune_next,
    pgflowd.read_original, pgflowd.read_originals,
    pgflowd.read_runs, pgflowd.refill_limits, pgflowd.renew_workers,
    pgflowd.reschedule, pgflowd.resend, pgflowd.resume, pgflowd.roll_up_minutes,
    pgflowd.run_family,
    pgflowd.run_progress, pgflowd.run_steps,
    pgflowd.run_timeline, pgflowd.run_troubles, pgflowd.runs_by_id, pgflowd.schedule_troubles,
    pgflowd.search_runs, pgflowd.served_versions, pgflowd.signal, pgflowd.stalled_tasks, pgflowd.step_strip, pgflowd.sweeper_sleeps, pgflowd.task_wake,
    pgflowd.tell_daemon, pgflowd.undecided_tasks, pgflowd.value_part, pgflowd.wanted_output,
    pgflowd.writers,
    pgflow.cascade_complete_taskless_steps, pgflow.cascade_resolve_conditions,
    pgflow.complete_task, pgflow.fail_task, pgflow.get_run_with_states, pgflow.maybe_complete_run,
    pgflow.recover_stalled_tasks, pgflow.requeue_stalled_tasks, pgflow.start_flows,
    pgflow.start_ready_steps, pgflow.start_tasks, pgflow._started_tasks,
    pgflowd.cancel, pgflowd.claim, pgflowd.complete, pgflowd.fail, pgflowd.get_run,
    pgflowd.give_up_task,
    pgflowd.fire_schedule, pgflowd.release, pgflowd.report, pgflowd.requeue_task, pgflowd.retry,
    pgflowd.start, pgflowd.start_child, pgflowd.start_runs, pgflowd.sweep, pgflowd.sweep_attempts, pgflowd.sweep_dead, pgflowd.task_claim,
    pgflowd.tick, pgflowd.task_complete, pgflowd.task_fail, pgflowd.task_release, pgflowd._started_tasks}';
  together constant text[] := '{pgflowd.claim, pgflowd._handle_unstarted, pgflowd.start_runs}';
  by_key constant text := 'set jit = off set plan_cache_mode = force_generic_plan'
    ' set enable_seqscan = off set cpu_tuple_cost = 1 set cpu_index_tuple_cost = 1';
  in_turn constant text := ' set enable_hashjoin = off set enable_mergejoin = off';
  alone constant text := ' set max_parallel_workers_per_gather = 0';
  one record;
begin
  for one in
    select function.oid::regprocedure as signature, schema.nspname || '.' || function.proname as name
      from pg_catalog.pg_proc as function
      join pg_catalog.pg_namespace as schema on schema.oid = function.pronamespace
     where schema.nspname in ('pgflow', 'pgflowd')
       and before ->> function.oid::regprocedure::text is distinct from function.ctid::text
  loop
    if one.name = any (by_keys) then
      execute format('alter function %s %s %s %s', one.signature, by_key,
                     case when one.name <> all (together) then in_turn end,
                     case when one.name = 'pgflow._started_tasks' then alone end);
    elsif one.name in ('pgflowd._count_waits', 'pgflowd.open_tasks', 'pgflowd._queue_status',
                       'pgflowd._waiting_runs') then
      execute format('alter function %s %s %s set enable_bitmapscan = off set enable_sort = off',
                     one.signature, by_key, alone);
    elsif one.name = 'pgflow._start_tasks' then
      execute format('alter function %s set jit = off %s', one.signature, in_turn);
    end if;
  end loop;
end
$$;
