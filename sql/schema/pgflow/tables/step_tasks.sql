-- step_tasks: units of work; one for a single step, one per element for a map. Each has a
-- message in the flow's queue. A task of a skipped step is skipped.
-- No index mentions a column that a claim or a report changes, so that both are HOT. Started
-- tasks are found through their messages. The few without one, and those whose message was
-- archived when recovery gave them up, are found through the last index.
create table if not exists pgflow.step_tasks (
  flow_slug text not null,
  run_id uuid not null,
  step_slug text not null,
  message_id bigint,
  task_index int not null default 0,
  status text not null default 'queued',
  attempts_count int not null default 0,
  error_message text,
  output jsonb,
  queued_at timestamptz not null default now(),
  started_at timestamptz,
  completed_at timestamptz,
  failed_at timestamptz,
  last_worker_id uuid,
  requeued_count int not null default 0,
  last_requeued_at timestamptz,
  permanently_stalled_at timestamptz,
  queue_name text not null generated always as (lower(flow_slug collate "C")) stored,
  constraint step_tasks_pkey primary key (run_id, step_slug, task_index),
  constraint step_tasks_flow_slug_fkey foreign key (flow_slug)
    references pgflow.flows (flow_slug),
  constraint step_tasks_run_id_fkey foreign key (run_id) references pgflow.runs (run_id),
  constraint step_tasks_run_id_step_slug_fkey foreign key (run_id, step_slug)
    references pgflow.step_states (run_id, step_slug),
  constraint step_tasks_last_worker_id_fkey foreign key (last_worker_id)
    references pgflow.workers (worker_id) on delete set null,
  constraint valid_status
    check (status in ('queued', 'started', 'completed', 'failed', 'skipped')),
  constraint attempts_count_nonnegative check (attempts_count >= 0),
  constraint output_valid_only_for_completed
    check (output is null or status in ('completed', 'failed')),
  constraint started_at_is_after_queued_at check (started_at is null or started_at >= queued_at),
  constraint completed_at_is_after_queued_at
    check (completed_at is null or completed_at >= queued_at),
  constraint completed_at_is_after_started_at
    check (completed_at is null or started_at is null or completed_at >= started_at),
  constraint failed_at_is_after_queued_at check (failed_at is null or failed_at >= queued_at),
  constraint failed_at_is_after_started_at
    check (failed_at is null or started_at is null or failed_at >= started_at),
  constraint completed_at_or_failed_at
    check (not (completed_at is not null and failed_at is not null))
) with (fillfactor = 35, autovacuum_vacuum_scale_factor = 0.05,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
create index if not exists idx_step_tasks_message_id
  on pgflow.step_tasks (flow_slug, message_id);
create index if not exists idx_step_tasks_without_message
  on pgflow.step_tasks (flow_slug)
  where message_id is null or permanently_stalled_at is not null;
