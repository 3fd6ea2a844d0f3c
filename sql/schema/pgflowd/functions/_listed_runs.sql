-- _listed_runs(run_ids): returns these runs in this order, as lists show them: with their status, how far
-- they are, and why they failed. `steps_done` counts completed and skipped steps, `share` how much of the
-- steps is done, as far as it is known. It reads no input and no output, and of a run that has ended not
-- what its tasks told. `missing` stands for a column that some cores do not have, as in news.
-- Called by: list_runs, runs_by_id, search_runs.   Locks: nothing.
create or replace function pgflowd._listed_runs(run_ids uuid[])
returns table (run_id uuid, flow_slug text, status text, started_at timestamptz,
               ended_at timestamptz, steps int, steps_done int, error_message text,
               start_at timestamptz, labels jsonb, share float8, undo_of uuid, title text, nr bigint)
language sql stable set search_path = '', pg_temp as $$
  select run.run_id, run.flow_slug, run.status, run.started_at, run.ended_at, progress.steps,
         progress.done, coalesce(failed.error_message, progress.error_message), run.start_at,
         run.labels,
         (progress.done + progress.begun + coalesce(told.shares, 0)) / nullif(progress.steps, 0),
         run.undo_of, run.title, given.nr
    from unnest(_listed_runs.run_ids) with ordinality as given (run_id, nr)
   cross join lateral (
     select one.run_id, one.flow_slug, one.status, one.started_at, one.ended_at, one.start_at,
            one.labels, one.undo_of, one.title
       from pgflowd.run_status as one where one.run_id = given.run_id offset 0) as run
    left join lateral (
     select one.error_message
       from (values (null::text)) as missing (error_message)
      cross join lateral (
        select error_message from pgflow.runs as known
         where known.run_id = given.run_id and known.status = 'failed' offset 0) as one) as failed on true
   cross join lateral (
     select count(*)::int as steps,
            count(*) filter (where state.status in ('completed', 'skipped'))::int as done,
            min(state.error_message) filter (where state.status = 'failed') as error_message,
            coalesce(sum(1 - state.remaining_tasks::float8 / nullif(state.initial_tasks, 0))
                       filter (where state.status = 'started'), 0) as begun
       from pgflow.step_states as state where state.run_id = given.run_id) as progress
   cross join lateral (
     select sum(pgflowd._share(one.progress) / state.initial_tasks) as shares
       from pgflowd.run_progress(case when run.status = 'started' then given.run_id end) as one
       join pgflow.step_states as state
         on state.run_id = given.run_id and state.step_slug = one.step_slug) as told
   order by given.nr;
$$;
