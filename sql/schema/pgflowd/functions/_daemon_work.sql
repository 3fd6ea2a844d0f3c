-- _daemon_work(status): of the workers that a daemon has told of: how many live; how many tasks they
-- hold; and in how many seconds the last of their leases lapses, negative if it has: null without one.
-- Called by: daemons, tell_daemon.   Locks: nothing.
create or replace function pgflowd._daemon_work(status jsonb)
returns table (living bigint, tasks bigint, lapses_in_s float8)
language sql stable set search_path = '', pg_temp as $$
  with served as materialized (
    select worker.worker_id, worker.stopped_at is null
                             and worker.last_heartbeat_at > now() - interval '30 s' as is_living
      from jsonb_path_query(
             _daemon_work.status,
             '$.flows[*].worker_id ? (@ like_regex "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")')
             as told (id)
      join pgflow.workers as worker on worker.worker_id = (told.id #>> '{}')::uuid
  ), held as materialized (
    select attempt.lease_until
      from served
     cross join lateral pgflowd._started_tasks(served.worker_id) as task
      left join pgflowd.attempts as attempt
        on attempt.run_id = task.run_id and attempt.step_slug = task.step_slug
       and attempt.task_index = task.task_index and attempt.worker_id = served.worker_id
       and attempt.ended_at is null)
  select (select count(*) from served where served.is_living),
         (select count(*) from held),
         (select extract(epoch from max(held.lease_until) - now())::float8 from held);
$$;
