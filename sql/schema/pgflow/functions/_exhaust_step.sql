-- _exhaust_step(run_id, step_slug, error_message): applies the step's when_exhausted, since a
-- task of it has no attempt left: the run fails, or the step is skipped and the rest goes on,
-- with or without the steps downstream. A step ends once, however many of its tasks have no
-- attempt left.
-- Called by: _fail_tasks.   Locks: states, tasks, messages (the run is locked already).
create or replace function pgflow._exhaust_step(run_id uuid, step_slug text, error_message text)
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  the_run constant uuid := _exhaust_step.run_id;
  the_step constant text := _exhaust_step.step_slug;
  mode text;
begin
  select step.when_exhausted into mode
    from pgflow.runs as run
    join pgflow.step_states as state on state.run_id = run.run_id and state.step_slug = the_step
    join pgflow.steps as step on step.flow_slug = run.flow_slug and step.step_slug = the_step
   where run.run_id = the_run and run.status = 'started' and state.status = 'started';
  if not found then
    return;  -- another task of the batch has ended the step or the run
  end if;

  if mode = 'fail' then
    perform pgflow._fail_step(the_run, the_step, _exhaust_step.error_message);
    return;
  end if;
  perform pgflow._skip_steps(the_run, array[the_step], array['handler_failed'],
                             coalesce(_exhaust_step.error_message, ''));
  if mode = 'skip-cascade' then
    perform pgflow._cascade_force_skip_steps(the_run, the_step, 'handler_failed');
    perform pgflow._complete_runs(array[the_run], array[1]);
  else
    perform pgflow._advance(array[the_run], array[the_step]);
  end if;
end $$;
