-- _complete_runs(run_ids, ended_steps): counts ended steps down, and completes the runs that have
-- none left. A run's output is that of its completed leaves by slug, null if there is none. A run
-- whose output is more than a jsonb can hold fails.
-- Called by: _advance, _exhaust_step, maybe_complete_run, _start_runs.   Locks: the runs.
create or replace function pgflow._complete_runs(run_ids uuid[], ended_steps int[])
returns void language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  completed uuid[];
  watched uuid[];
  too_large uuid[];
begin
  with settled as (
    update pgflow.runs as run
       set remaining_steps = run.remaining_steps - ended.steps,
           status = case when not ended.last then run.status
                         when ended.is_too_large then 'failed' else 'completed' end,
           completed_at = case when ended.last and not ended.is_too_large
                               then greatest(pgflow._moment(), run.started_at)
                               else run.completed_at end,
           failed_at = case when ended.is_too_large
                            then greatest(pgflow._moment(), run.started_at) else run.failed_at end,
           error_message = case when ended.is_too_large
             then 'the output of the run would be larger than 256 MB, the most that jsonb holds: '
                  || 'let its last steps return less'
             else run.error_message end,
           output = case when ended.last then ended.output else run.output end
      from (select one.*, joined.output,
                   coalesce(leaves.large is not null and joined.output is null, false) as is_too_large
              from (select one.run_id, given.steps,
                           one.status = 'started' and one.remaining_steps = given.steps as last
                      from unnest(_complete_runs.run_ids, ended_steps) as given (run_id, steps)
                      join pgflow.runs as one on one.run_id = given.run_id) as one
              left join lateral (
                select array_agg(state.step_slug) filter (where kept.is_large) as large,
                       array_agg(state.step_slug) as slugs,
                       jsonb_object_agg(state.step_slug, state.output)
                         filter (where not kept.is_large) as small
                  from pgflow.step_states as state
                 cross join lateral (select pgflow._is_large(state.output)) as kept (is_large)
                 where one.last and state.run_id = one.run_id and state.status = 'completed'
                   and not exists (select from pgflow.deps as dep
                                    where dep.flow_slug = state.flow_slug
                                      and dep.dep_slug = state.step_slug)
                offset 0) as leaves on true
             cross join lateral (
               select case when leaves.large is null then leaves.small
                           else pgflow._join_outputs(one.run_id, leaves.slugs) end as output
               offset 0) as joined) as ended
     where run.run_id = ended.run_id and (ended.steps > 0 or ended.last)
    returning run.run_id, ended.last, run.is_watched, ended.is_too_large
  )
  select array_agg(settled.run_id) filter (where settled.last),
         array_agg(settled.run_id) filter (where settled.last and settled.is_watched),
         array_agg(settled.run_id) filter (where settled.is_too_large)
    into completed, watched, too_large from settled;
  if completed is not null then
    perform pgflow._send_run_events(completed);
  end if;
  if watched is not null then
    perform pgflow._mark_ended(watched);
  end if;
  if too_large is not null then
    perform pgflow._mark_failed(one) from unnest(too_large) as one;
  end if;
end $$;
