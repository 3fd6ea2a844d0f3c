-- _moment(): returns when what this transaction reports has happened: its now(), unless a runner has
-- set pgflowd.moment. A runner completes its task in the transaction of its handler, whose now() is
-- when the handler executed its first statement. Callers' queries inline it.
-- Called by: pgflow.cascade_complete_taskless_steps, _close_attempts, pgflow._complete_maps,
-- pgflow._complete_runs, pgflow._complete_tasks, news, pgflow._send_tasks, pgflow._skip_steps,
-- pgflow._start_steps.
-- Locks: nothing.
create or replace function pgflowd._moment()
returns timestamptz language sql stable as $$
  select coalesce(nullif(current_setting('pgflowd.moment', true), '')::timestamptz, now())
$$;
