-- flow_shape(flow_slug): returns the flow as a shape with the options in force, so that they can be
-- compared with the code's; null for an unknown flow. A step's unset options are left out,
-- and so are the list of schedules and the schema of the input where the code has none. Where an
-- older core has no column, the value is how that core behaves.
-- Called by: compare_options, deploy_version, set_option; workers, commands.   Locks: nothing.
create or replace function pgflowd.flow_shape(flow_slug text)
returns jsonb language sql stable set search_path = '', pg_temp as $$
  select jsonb_build_object(
           'options', jsonb_build_object(
             'maxAttempts', flow.opt_max_attempts, 'baseDelay', flow.opt_base_delay,
             'timeout', flow.opt_timeout) || jsonb_strip_nulls(jsonb_build_object(
               'onFailure', wanted.on_failure, 'onCancel', wanted.on_cancel))
             || coalesce(flow.starts, '{}'),
           'steps', (
             select coalesce(jsonb_agg(jsonb_build_object(
                      'slug', step.step_slug,
                      'stepType', coalesce(one.fields ->> 'step_type', 'single'),
                      'dependencies', (
                        select coalesce(jsonb_agg(dep.dep_slug order by dep.dep_slug), '[]')
                          from pgflow.deps as dep
                         where dep.flow_slug = step.flow_slug and dep.step_slug = step.step_slug),
                      'whenUnmet', coalesce(one.fields ->> 'when_unmet', 'skip'),
                      'whenExhausted', coalesce(one.fields ->> 'when_exhausted', 'fail'),
                      'requiredInputPattern',
                        pgflowd._pattern(one.fields -> 'required_input_pattern'),
                      'forbiddenInputPattern',
                        pgflowd._pattern(one.fields -> 'forbidden_input_pattern'),
                      'options', jsonb_strip_nulls(jsonb_build_object(
                        'maxAttempts', step.opt_max_attempts, 'baseDelay', step.opt_base_delay,
                        'timeout', step.opt_timeout, 'startDelay', one.fields -> 'opt_start_delay',
                        'needs', asked.needs, 'limit', case when asked.slots is not null then
                          jsonb_strip_nulls(jsonb_build_object(
                            'slots', asked.slots, 'name', asked.name, 'path', asked.path)) end,
                        'crashLimit', asked.crash_limit, 'onCrashLimit', asked.on_crash_limit,
                        'undo', asked.undo, 'settle', nullif(one.fields -> 'settles', 'false'))))
                    order by step.step_index), '[]')
               from pgflow.steps as step
              cross join lateral (select to_jsonb(step) as fields) as one
               left join lateral (
                 select option.needs, option.crash_limit, option.on_crash_limit, option.undo,
                        option.limit_slots as slots, option.limit_path as path,
                        nullif(option.limit_name, concat(pgflowd._name_of(flow.flow_slug), '/', step.step_slug))
                          as name
                   from pgflowd.step_options as option
                  where option.flow_slug = step.flow_slug and option.step_slug = step.step_slug)
                 as asked on true
              where step.flow_slug = flow.flow_slug))
         || case when wanted.input_schema is null then '{}' else
              jsonb_build_object('inputSchema', wanted.input_schema) end
         || jsonb_strip_nulls(jsonb_build_object('flowType', to_jsonb(flow.flow_type)))
         || coalesce((
           select jsonb_build_object('schedules', to_jsonb(array_agg(jsonb_build_object(
                    'name', schedule.name, 'cron', schedule.cron, 'timezone', schedule.timezone,
                    'input', schedule.input, 'overlap', schedule.overlap,
                    'catchup', schedule.catchup) order by schedule.name)))
             from pgflowd.schedules as schedule
            where schedule.flow_slug = pgflowd._name_of(flow.flow_slug) and schedule.origin = 'code'
           having count(*) > 0), '{}')
    from pgflow.flows as flow
    left join pgflowd.flow_options as wanted on wanted.flow_slug = flow.flow_slug
   where flow.flow_slug = flow_shape.flow_slug;
$$;
