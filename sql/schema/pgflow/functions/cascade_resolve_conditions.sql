-- cascade_resolve_conditions(run_id): tests the conditions of the steps that are ready, round by
-- round until nothing is skipped any more. A step is ready once, so its condition is tested once.
-- False when a condition has failed the run, now or before; so does one that cannot be tested, since
-- the input is more than a jsonb can hold.
-- Called by: _resolve_steps, pgflowd._advance.   Locks: the run, then states.
create or replace function pgflow.cascade_resolve_conditions(run_id uuid)
returns boolean language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  the_run constant uuid := cascade_resolve_conditions.run_id;
  run_status text;
  unmet record;
  untestable text;
begin
  select run.status into run_status from pgflow.runs as run
   where run.run_id = the_run for no key update;
  if run_status is distinct from 'started' then
    return run_status is distinct from 'failed';
  end if;

  loop  -- each round skips a step at least
    begin
      select array_agg(step.step_slug order by step.step_index)
               filter (where step.when_unmet = 'fail') as to_fail,
             array_agg(step.step_slug order by step.step_slug)
               filter (where step.when_unmet = 'skip') as to_skip,
             array_agg(step.step_slug order by step.step_index)
               filter (where step.when_unmet = 'skip-cascade') as to_cascade
        into unmet
        from pgflow._unmet_steps(the_run) as step;
    exception when program_limit_exceeded then
      get stacked diagnostics untestable = column_name;
      if untestable = '' then
        raise;
      end if;
      perform pgflow._fail_step(the_run, untestable, 'Condition not met: ' || sqlerrm);
      return false;
    end;

    if unmet.to_fail is not null then
      perform pgflow._fail_step(the_run, unmet.to_fail[1], 'Condition not met');
      return false;
    elsif unmet.to_skip is null and unmet.to_cascade is null then
      return true;
    end if;
    if unmet.to_skip is not null then
      perform pgflow._skip_unmet(the_run, unmet.to_skip);
    end if;
    for i in 1 .. coalesce(cardinality(unmet.to_cascade), 0) loop
      perform pgflow._cascade_force_skip_steps(the_run, unmet.to_cascade[i], 'condition_unmet');
    end loop;
  end loop;
end $$;
