-- export_runs(run_ids, max_runs): returns what the spans of these runs need that have ended, and of runs
-- that no report has ended, at most so many: of each a row with the run (`step_slug` is null), and one for
-- each step that began or was skipped. A step that had not ended lasts as long as its run. In the
-- transaction of export_attempts, which holds the cursor.
-- Called by: the exporter.   Locks: rows of ended_runs.
create or replace function pgflowd.export_runs(run_ids uuid[], max_runs int)
returns table (run_id uuid, flow_slug text, step_slug text, status text, error text,
               began_us bigint, ended_us bigint, deps text[], trace jsonb)
language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  ended uuid[];
begin
  with told as (
    delete from pgflowd.ended_runs as told
     where told.run_id in (select one.run_id from pgflowd.ended_runs as one
                            order by one.run_id limit export_runs.max_runs)
    returning told.run_id
  )
  select array_agg(told.run_id) into ended from told;
  return query
    select run.run_id, run.flow_slug, part.step_slug, part.status, left(part.error, 4000),
           (extract(epoch from part.began_at) * 1000000)::bigint,
           (extract(epoch from part.ended_at) * 1000000)::bigint, part.deps,
           case when part.step_slug is null then pgflowd._trace_of(run.run_id, null, null, null) end
      from (select unnest(export_runs.run_ids) union select unnest(ended)) as one (run_id)
     cross join lateral (
       select found.*, case found.status when 'completed' then found.completed_at
                                         else found.failed_at end as ended_at
         from pgflow.runs as found
        where found.run_id = one.run_id and found.status <> 'started' offset 0) as run
     cross join lateral (
       select null::text as step_slug,
              case when ours.expired_at is not null and run.status = 'failed' then 'expired'
                   when ours.cancelled_at is not null and run.status = 'failed' then 'cancelled'
                   else run.status end as status,
              run.error_message as error, run.started_at as began_at, run.ended_at, null::text[] as deps
         from (select) as always
         left join lateral (select known.expired_at, known.cancelled_at from pgflowd.runs as known
                             where known.run_id = run.run_id offset 0) as ours on true
       union all
       select state.step_slug, state.status,
              nullif(concat_ws(': ', state.skip_reason, nullif(state.error_message, '')), ''),
              coalesce(state.started_at, state.skipped_at, state.completed_at, state.failed_at),
              coalesce(case state.status when 'completed' then state.completed_at
                                         when 'failed' then state.failed_at
                                         when 'skipped' then state.skipped_at end,
                       greatest(run.ended_at, state.started_at)),
              array(select dep.dep_slug from pgflow.deps as dep
                     where dep.flow_slug = state.flow_slug and dep.step_slug = state.step_slug
                     order by dep.dep_slug)
         from pgflow.step_states as state
        where state.run_id = run.run_id and state.status <> 'created') as part;
end $$;
