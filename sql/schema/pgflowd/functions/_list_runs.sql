-- _list_runs(of_flow, statuses, since, max_runs, with_labels, with_undos): see list_runs. Its query is
-- planned for the very arguments, so that those which are null cost nothing, and each other one can have
-- its index. No index knows a status, so it looks at the newest 100,000 runs of that flow and age, and
-- as many that have not begun, or never did; for `waiting` alone at those of the newest 10,000 waits of
-- each flow, since such runs are old. It reads no input and no output, waits only of open runs, and
-- their steps only where something waits. Those that have not begun, and those that never did, are read
-- one state after the other, as their index has them: of a flow there may be a million entries of runs
-- that have ended. `missing` stands for columns that some cores do not have, as in news.
-- Called by: list_runs.   Locks: nothing.
create or replace function pgflowd._list_runs(
  of_flow text, statuses text[], since interval, max_runs int, with_labels jsonb,
  with_undos boolean)
returns table (run_id uuid, flow_slug text, status text, started_at timestamptz,
               ended_at timestamptz, steps int, steps_done int, error_message text,
               start_at timestamptz, labels jsonb, share float8, undo_of uuid)
language plpgsql stable set search_path = '' as $$
declare
  flows constant text[] := case when _list_runs.of_flow is not null
                                then pgflowd.flows_of(_list_runs.of_flow) end;
  unbegun constant text := $query$
    (select entry, entry.created_at from pgflowd.runs as entry
      where entry.state = '@state' and ($1 is null or entry.flow_slug @@ $1)
        and ($3 is null or entry.created_at > now() - $3)
        and ($5 is null or entry.labels @> $5)
      order by entry.created_at desc limit 100000)
  $query$;
begin
  return query execute replace(replace(replace($query$
    select found.run_id, found.flow_slug, found.status, found.started_at, found.ended_at,
           progress.steps, progress.done,
           coalesce(found.error_message, progress.error_message), wished.start_at, wished.labels,
           (progress.done + progress.begun + coalesce(told.shares, 0)) / nullif(progress.steps, 0),
           wished.undo_of
      from ((select run.run_id, run.flow_slug, judged.status, run.started_at, run.ended_at,
                   case when run.status = 'failed' then run.error_message end as error_message,
                   run.started_at as at
              from (values (null::text, false)) as missing (error_message, is_paused)
             cross join lateral (
               select one.run_id, one.flow_slug, one.status, one.started_at,
                      coalesce(one.completed_at, one.failed_at) as ended_at, error_message,
                      is_paused
                 from pgflow.runs as one
                where ($1 is null or one.flow_slug @@ $1)
                  and ($3 is null or one.started_at > now() - $3)
                  and ($5 is null or one.run_id = any (array(
                    select labelled.run_id from pgflowd.runs as labelled
                     where labelled.labels @> $5 order by labelled.created_at desc limit 100000)))
                order by one.started_at desc limit 100000) as run
              left join lateral (
               select one.cancelled_at, one.expired_at, one.undo_state, one.undo_of
                 from pgflowd.runs as one where one.run_id = run.run_id offset 0) as ours on true
             cross join lateral (
               select count(*) as tasks, bool_or(wait.kind = 'quarantined') as has_quarantined
                 from pgflowd.waits as wait
                where wait.run_id = run.run_id and run.status = 'started') as waiting
             cross join lateral (
               select sum(state.remaining_tasks) as tasks from pgflow.step_states as state
                where state.run_id = run.run_id and state.status = 'started'
                  and waiting.tasks > 0) as open
             cross join lateral (
               select pgflowd._run_status(
                        run.status, ours.cancelled_at is not null, open.tasks, waiting.tasks,
                        false, ours.expired_at is not null, is_paused => run.is_paused,
                        is_quarantined => waiting.has_quarantined,
                        undo_state => ours.undo_state) as status) as judged
             where ($6 or ours.undo_of is null) and ($2 is null
                or judged.status = any ($2)
                   and run.status = any (array(  -- of others nothing is looked up
                         select unnest(case
                                  when given.status in ('waiting', 'paused', 'quarantined')
                                    then '{started}'
                                  when given.status in ('cancelled', 'expired') then '{failed}'
                                  when given.status like 'und%' then '{completed,failed}'
                                  else array[given.status] end)
                           from unnest($2) as given (status))))
             order by run.started_at desc
             limit $4)
            union all
           (select ours.run_id, ours.flow_slug, judged.status, null, ours.ended_at, null,
                   ours.created_at
              from (select (one.entry).*, pgflowd._is_blocked(one.entry) as is_blocked,
                           coalesce((one.entry).cancelled_at, (one.entry).expired_at) as ended_at
                      from (@planned union all @ended
                             order by created_at desc limit 100000) as one) as ours
             cross join lateral (
               select pgflowd._run_status(
                        null, ours.cancelled_at is not null, null, null, ours.state = 'planned',
                        ours.expired_at is not null, ours.is_blocked) as status) as judged
             where $2 is null or judged.status = any ($2)
             order by ours.created_at desc
             limit $4)
             order by at desc
             limit $4) as found
     cross join lateral (
       select count(*)::int as steps,
              count(*) filter (where state.status in ('completed', 'skipped'))::int as done,
              min(state.error_message) filter (where state.status = 'failed') as error_message,
              coalesce(sum(1 - state.remaining_tasks::float8 / nullif(state.initial_tasks, 0))
                         filter (where state.status = 'started'), 0) as begun
         from pgflow.step_states as state where state.run_id = found.run_id) as progress
      left join lateral (
       select one.start_at, one.labels, one.undo_of from pgflowd.runs as one
        where one.run_id = found.run_id offset 0) as wished on true
     cross join lateral (
       select sum(pgflowd._share(one.progress) / state.initial_tasks) as shares
         from pgflowd.run_progress(case when found.status = 'started' then found.run_id end) as one
         join pgflow.step_states as state
           on state.run_id = found.run_id and state.step_slug = one.step_slug) as told
     order by found.at desc, found.run_id desc
    $query$, '@planned', replace(unbegun, '@state', 'planned')),
         '@ended', replace(unbegun, '@state', 'ended')),
         '@@ $1', case when cardinality(flows) > 1 then '= any ($7)' else '= $1' end)
    using flows[1], _list_runs.statuses, _list_runs.since, _list_runs.max_runs,
          _list_runs.with_labels, _list_runs.with_undos or _list_runs.of_flow is not null, flows;
end $$;
