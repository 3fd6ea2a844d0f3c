-- _step_events(run_id): when each step of a run started and ended, and the waits of its tasks: those
-- under way, and how others ended, as checkpoints say. See run_timeline.
-- Called by: run_timeline.   Locks: nothing.
create or replace function pgflowd._step_events(run_id uuid)
returns table (at timestamptz, event text, step_slug text, detail jsonb, rank int)
language sql stable set search_path = '', pg_temp as $$
  select one.at, 'step:' || one.word, state.step_slug,
         case one.word when 'started' then jsonb_build_object('tasks', state.initial_tasks)
                       else jsonb_build_object('error', state.error_message,
                                               'skip_reason', state.skip_reason) end,
         case when one.word = 'started' then 5
              when one.at = state.started_at then 6 else 4 end
    from (values (null::timestamptz, null::text, null::text)) as missing (skipped_at, skip_reason,
                                                                          error_message)
   cross join lateral (
     select step.step_slug, step.initial_tasks, step.started_at, step.completed_at,
            step.failed_at, skipped_at, skip_reason, error_message
       from pgflow.step_states as step where step.run_id = _step_events.run_id offset 0) as state
   cross join lateral (values
     (state.started_at, 'started'), (state.completed_at, 'completed'), (state.failed_at, 'failed'),
     (state.skipped_at, 'skipped')) as one (at, word)
   where one.at is not null;
$$;
