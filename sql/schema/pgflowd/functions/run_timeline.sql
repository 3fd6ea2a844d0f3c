-- run_timeline(run_id, after, before, max_events): returns what happened in a run, in the order of time;
-- with `after` only what happened then or later, with `before` only what happened before, of that the
-- newest `max_events` and what has the moment of the oldest of these; so what is older is found with that
-- as `before`. Nothing is written for it: events are read from the rows that say how the
-- run is, hence of what a retry did again only the last time is told, and the rest by the attempts and
-- actions. run:planned, run:started, run:completed, … step:started, step:completed, … task:started,
-- task:failed, …   an attempt, by its `token`, began, or ended with this outcome; `final` in `detail` if
-- the task has failed with it task:completed, …   without a token: what became of a task whose attempts
-- do not say so: they were not kept (`history`), or it was not claimed by us task:waiting, task:freed,
-- signal:received, child:started, child:completed, undo:started, … action:cancel, …   what somebody did;
-- `actor` says who, and `session_role` in `detail` by which role. Events of one moment are in the order in
-- which one leads to the other. `detail` never has an input or an output. A run with many tasks has some
-- events for each. `missing` stands for columns that some cores do not have, as in news.
-- Called by: clients, commands; applications.   Locks: nothing.
create or replace function pgflowd.run_timeline(
  run_id uuid, after timestamptz default null, before timestamptz default null,
  max_events int default null)
returns table (at timestamptz, event text, step_slug text, task_index int, token bigint, actor text,
               detail jsonb)
language sql stable set search_path = '', pg_temp as $$
  select found.at, found.event, found.step_slug, found.task_index, found.token, found.actor,
         jsonb_strip_nulls(coalesce(found.detail, '{}'))
    from (
     select known.*
      from (
      select one.at, one.event, null as step_slug, null::int as task_index, null::bigint as token,
             one.actor, one.detail, one.rank
        from pgflowd._run_events(run_timeline.run_id) as one
      union all
      select one.at, one.event, one.step_slug, null, null, null, one.detail, one.rank
        from pgflowd._step_events(run_timeline.run_id) as one
      union all
      select one.at, one.event, one.step_slug, one.task_index, one.token, one.actor, one.detail,
             one.rank
        from pgflowd._task_events(
               run_timeline.run_id, coalesce(run_timeline.after, '-infinity'),
               coalesce(run_timeline.before, 'infinity'), run_timeline.max_events) as one
      union all
      select action.at, 'action:' || action.action, action.step_slug, action.task_index, null,
             action.actor,
             jsonb_build_object('action_id', action.action_id, 'reason', action.reason)
               || coalesce(action.data, '{}') || jsonb_build_object('session_role', action.session_role), 0
        from (select * from pgflowd.actions as one
               where one.run_id = run_timeline.run_id offset 0) as action  -- not along the moments
      union all
      select signal.consumed_at, 'signal:received', signal.step_slug, signal.task_index, null,
             signal.sent_by,
             jsonb_build_object('signal_id', signal.signal_id, 'name', signal.name,
                                'session_role', signal.session_role), 3
        from pgflowd.signals as signal where signal.run_id = run_timeline.run_id
      ) as known
      where known.at >= coalesce(run_timeline.after, '-infinity')
        and known.at < coalesce(run_timeline.before, 'infinity')
      order by known.at desc fetch first (run_timeline.max_events) rows with ties
    ) as found
   order by found.at, found.rank, found.token nulls last, found.step_slug, found.task_index;
$$;
