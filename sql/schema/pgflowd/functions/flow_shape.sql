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
                      'requiredInputPattern',
                        pgflowd._pattern(one.fields -> 'required_input_pattern'),
                      'forbiddenInputPattern',
                        pgflowd._pattern(one.fields -> 'forbidden_input_pattern'),
                      'options', jsonb_strip_nulls(own.options || jsonb_build_object(
                        'needs', asked.needs, 'limit', case when asked.limit_slots is not null then
                          jsonb_strip_nulls(jsonb_build_object(
                            'slots', asked.limit_slots, 'path', asked.limit_path, 'name', nullif(
                              asked.limit_name,
                              concat(pgflowd._name_of(flow.flow_slug), '/', step.step_slug)))) end,
                        'undo', asked.undo, 'settle', nullif(one.fields -> 'settles', 'false'))))
                    || own.modes order by step.step_index), '[]')
               from pgflow.steps as step
               left join pgflowd.step_options as asked
                 on asked.flow_slug = step.flow_slug and asked.step_slug = step.step_slug
              cross join lateral (select to_jsonb(step) || coalesce(to_jsonb(asked), '{}') as fields) as one
              cross join lateral (
                select jsonb_object_agg(known.name, one.fields -> known.field)
                         filter (where not known.is_mode) as options,
                       jsonb_object_agg(known.name, coalesce(one.fields -> known.field, known.preset))
                         filter (where known.is_mode) as modes
                  from pgflowd._options() as known) as own
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
