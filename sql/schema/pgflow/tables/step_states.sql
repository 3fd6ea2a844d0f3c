-- step_states: one row per run and step, made with the run. Counts down to readiness
-- (remaining_deps) and to completion (remaining_tasks). The key serves every look-up of the
-- engine; the index serves the deletion of a flow. Neither has a column that changes, so
-- that every update is HOT.
create table if not exists pgflow.step_states (
  flow_slug text not null,
  run_id uuid not null,
  step_slug text not null,
  status text not null default 'created',
  remaining_tasks int,
  initial_tasks int,
  remaining_deps int not null default 0,
  output jsonb,
  error_message text,
  skip_reason text,
  created_at timestamptz not null default now(),
  started_at timestamptz,
  completed_at timestamptz,
  failed_at timestamptz,
  skipped_at timestamptz,
  constraint step_states_pkey primary key (run_id, step_slug),
  constraint step_states_flow_slug_fkey foreign key (flow_slug)
    references pgflow.flows (flow_slug),
  constraint step_states_run_id_fkey foreign key (run_id) references pgflow.runs (run_id),
  constraint step_states_flow_slug_step_slug_fkey foreign key (flow_slug, step_slug)
    references pgflow.steps (flow_slug, step_slug),
  constraint status_is_valid
    check (status in ('created', 'started', 'completed', 'failed', 'skipped')),
  constraint step_states_initial_tasks_check check (initial_tasks is null or initial_tasks >= 0),
  constraint step_states_remaining_deps_check check (remaining_deps >= 0),
  constraint initial_tasks_known_when_started
    check (status <> 'started' or initial_tasks is not null),
  constraint remaining_tasks_state_consistency
    check (remaining_tasks is null or status not in ('created', 'skipped')),
  constraint status_and_remaining_tasks_match check (status <> 'completed' or remaining_tasks = 0),
  constraint output_only_for_completed_or_null check (output is null or status = 'completed'),
  constraint skip_reason_matches_status
    check ((status = 'skipped' and skip_reason is not null)
           or (status <> 'skipped' and skip_reason is null)),
  constraint started_at_is_after_created_at check (started_at is null or started_at >= created_at),
  constraint completed_at_is_after_started_at
    check (completed_at is null or completed_at >= started_at),
  constraint failed_at_is_after_started_at check (failed_at is null or failed_at >= started_at),
  constraint skipped_at_is_after_created_at check (skipped_at is null or skipped_at >= created_at),
  constraint completed_at_or_failed_at_or_skipped_at
    check ((case when completed_at is not null then 1 else 0 end
            + case when failed_at is not null then 1 else 0 end
            + case when skipped_at is not null then 1 else 0 end) <= 1)
) with (fillfactor = 35, autovacuum_vacuum_scale_factor = 0.05,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
-- its condition keeps it from look-ups by run and step, which may seem as cheap by it while there is one row
create index if not exists idx_step_states_flow_slug on pgflow.step_states (flow_slug, step_slug)
  where flow_slug is not null;
