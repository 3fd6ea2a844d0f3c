-- overview_counts(): returns what needs attention, each at most 1,001, which means more than a thousand:
-- runs that started in the last day and failed, waits for an answer of a person (an approval, or a need
-- that begins with `human.`), tasks in quarantine, started tasks whose lease has lapsed, and dead letters.
-- Of the first and the last it looks at the newest 20,000 runs, of the last at 1,001 that failed, and of
-- the waits at 20,000 of each kind.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.overview_counts()
returns table (failed bigint, people bigint, quarantined bigint, stalled bigint, dead bigint)
language sql stable set search_path = '', pg_temp as $$
  select (select one.found
            from pgflowd.count_runs(statuses => '{failed}', since => now() - interval '1 day') as one),
         (select count(*)
            from (select from (
                    (select wait.why = 'approval' as is_asked from pgflowd.waits as wait
                      where wait.kind = 'signal' order by wait.run_id, wait.name, wait.nr limit 20000)
                     union all
                    (select wait.name ~ '(^|,)human[.]' from pgflowd.waits as wait
                      where wait.kind = 'need' order by wait.flow_slug, wait.name, wait.nr
                      limit 20000)) as asking
                   where asking.is_asked limit 1001) as one),
         (select count(*)
            from (select from pgflowd.waits as wait where wait.kind = 'quarantined'
                   order by wait.since limit 1001) as one),
         (select count(*)
            from (select from pgflowd._started_tasks(null) as started
                   cross join lateral (
                     select task.attempts_count from pgflow.step_tasks as task
                      where task.run_id = started.run_id and task.step_slug = started.step_slug
                        and task.task_index = started.task_index offset 0) as task
                   cross join lateral (
                     select from pgflowd.attempts as held
                      where held.run_id = started.run_id and held.step_slug = started.step_slug
                        and held.task_index = started.task_index and held.ended_at is null
                        and held.attempt = task.attempts_count and held.lease_until < now()
                      limit 1) as lapsed
                   limit 1001) as one),
         (select count(*)
            from (select from (select newest.run_id
                                 from (select run.run_id, run.status from pgflow.runs as run
                                        order by run.started_at desc limit 20000) as newest
                                where newest.status = 'failed' limit 1001) as failed
                   cross join lateral (
                     select from pgflowd.dead_letters as letter
                      where letter.run_id = failed.run_id offset 0) as dead
                   limit 1001) as one);
$$;
