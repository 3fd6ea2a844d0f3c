-- runs: executions of flows. run_id stays the first column: workers of other runtimes read it by
-- position.
-- No index mentions a column that a report changes, so that every update of a run is HOT.
-- error_message says why a run failed. is_watched: somebody waits for its end, which its last report
-- therefore marks (pgflowd._mark_ended). While is_paused
-- no task of it begins.
create table if not exists pgflow.runs (
  run_id uuid not null default gen_random_uuid(),
  flow_slug text not null,
  status text not null default 'started',
  input jsonb not null,
  output jsonb,
  remaining_steps int not null default 0,
  started_at timestamptz not null default now(),
  completed_at timestamptz,
  failed_at timestamptz,
  error_message text,
  is_watched boolean not null default false,
  is_paused boolean not null default false,
  constraint runs_pkey primary key (run_id),
  constraint runs_flow_slug_fkey foreign key (flow_slug) references pgflow.flows (flow_slug),
  constraint status_is_valid check (status in ('started', 'failed', 'completed')),
  constraint runs_remaining_steps_check check (remaining_steps >= 0),
  constraint completed_at_is_after_started_at
    check (completed_at is null or completed_at >= started_at),
  constraint failed_at_is_after_started_at check (failed_at is null or failed_at >= started_at),
  constraint completed_at_or_failed_at
    check (not (completed_at is not null and failed_at is not null))
) with (fillfactor = 35, autovacuum_vacuum_scale_factor = 0.05,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
create index if not exists idx_runs_flow_slug on pgflow.runs (flow_slug, started_at desc);
create index if not exists idx_runs_started_at on pgflow.runs (started_at desc);
