-- _send_step_events(run_ids, step_slugs): the event that tells the present status of each step.
-- A step completed without a task tells its start as well, since nothing else did; a skip
-- tells its error when attempts ran out, and its flow when a condition or a cascade did it.
-- Called by: everything that moves a step.   Locks: nothing.
create or replace function pgflow._send_step_events(run_ids uuid[], step_slugs text[])
returns void language sql set search_path = '', pg_temp as $$
  select pgflow._send_events(array_agg(event.run_id order by event.ord),
                             array_agg(event.name order by event.ord),
                             array_agg(event.payload order by event.ord))
    from (select told.ord, state.run_id,
                 'step:' || state.step_slug || ':' || state.status as name,
                 jsonb_build_object(
                   'event_type', 'step:' || state.status, 'run_id', state.run_id,
                   'step_slug', state.step_slug, 'status', state.status)
                 || case state.status
                      when 'started' then jsonb_build_object(
                        'started_at', state.started_at, 'remaining_tasks', state.remaining_tasks,
                        'remaining_deps', state.remaining_deps)
                      when 'completed' then jsonb_build_object(
                        'output', state.output, 'completed_at', state.completed_at)
                        || case when state.initial_tasks = 0 then jsonb_build_object(
                             'started_at', state.started_at, 'remaining_tasks', 0,
                             'remaining_deps', 0) else '{}' end
                      when 'failed' then jsonb_build_object(
                        'error_message', state.error_message, 'failed_at', state.failed_at)
                      else jsonb_build_object(
                        'skip_reason', state.skip_reason, 'skipped_at', state.skipped_at)
                        || case when state.error_message is null
                                then jsonb_build_object('flow_slug', state.flow_slug)
                                else jsonb_build_object('error_message', state.error_message) end
                    end as payload
            from unnest(run_ids, step_slugs) with ordinality as told (run_id, step_slug, ord)
           cross join lateral (
             select one.* from pgflow.step_states as one
              where one.run_id = told.run_id and one.step_slug = told.step_slug
             offset 0) as state) as event
  having count(*) > 0;
$$;
