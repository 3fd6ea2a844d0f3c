-- news(run_ids): returns which of these runs, and which of their steps, were started, completed,
-- failed or skipped by this very transaction; `step_slug` is null for a run. `took_s` counts from the
-- start to the end, `ended_at` in seconds since 1970. A report writes such a moment as _moment(), a
-- start as now(), or as the start of what ended if that is later: two transactions that overlap
-- may each return a step without tasks, which starts and completes at once.
-- Called by: workers.   Locks: nothing.
create or replace function pgflowd.news(run_ids uuid[])
returns table (run_id uuid, step_slug text, status text, took_s float8, error text, ended_at float8)
language plpgsql stable set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  moment constant timestamptz := pgflowd._moment();
begin
  return query
    select new.run_id, new.step_slug, new.status,
           case when new.status <> 'started'
                then date_part('epoch', new.at - new.started_at) end,
           new.error,
           case when new.status <> 'started' then date_part('epoch', new.at) end
      from (
       select state.run_id, state.step_slug, state.status, state.created_at, state.started_at,
              case state.status when 'completed' then state.completed_at
                                when 'failed' then state.failed_at
                                when 'skipped' then state.skipped_at
                                when 'started' then state.started_at end as at,
              case when state.status in ('failed', 'skipped')
                   then nullif(concat_ws(': ', state.skip_reason, nullif(state.error_message, '')), '') end as error
         from pgflow.step_states as state where state.run_id = any (news.run_ids)
       union all
       select run.run_id, null, run.status, run.started_at, run.started_at,
              case run.status when 'completed' then run.completed_at
                              when 'failed' then run.failed_at end,
              case when run.status = 'failed' then run.error_message end
         from pgflow.runs as run where run.run_id = any (news.run_ids)) as new
     where new.at in (now(), moment)
        or new.at > moment
           and new.at = case when new.status in ('started', 'skipped') then new.created_at
                             else new.started_at end;
end $$;
