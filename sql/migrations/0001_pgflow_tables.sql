-- Migration 0001: the first tables of schema pgflow. A migration never changes.

-- flows: a flow and its default options, which may be changed by a plain UPDATE at any time.
-- flow_type tells a job (one step) from a flow. Two slugs that differ in case only would
-- share one queue, hence the second index.
create table if not exists pgflow.flows (
  flow_slug text not null,
  opt_max_attempts int not null default 3,
  opt_base_delay int not null default 1,
  opt_timeout int not null default 60,
  created_at timestamptz not null default now(),
  flow_type text not null default 'flow',
  constraint flows_pkey primary key (flow_slug),
  constraint slug_is_valid check (pgflow.is_valid_slug(flow_slug)),
  constraint opt_max_attempts_is_nonnegative check (opt_max_attempts >= 0),
  constraint opt_base_delay_is_nonnegative check (opt_base_delay >= 0),
  constraint opt_timeout_is_positive check (opt_timeout > 0),
  constraint flow_type_is_valid check (flow_type in ('flow', 'job'))
);
create unique index if not exists flows_lower_flow_slug_key on pgflow.flows (lower(flow_slug));

-- steps: the nodes of a flow. step_index is topological, because a step is added after its
-- deps. Options that are null are inherited from the flow. queue_name is what workers from
-- 0.17 on ask for.
create table if not exists pgflow.steps (
  flow_slug text not null,
  step_slug text not null,
  step_type text not null default 'single',
  step_index int not null default 0,
  deps_count int not null default 0,
  opt_max_attempts int,
  opt_base_delay int,
  opt_timeout int,
  opt_start_delay int,
  required_input_pattern jsonb,
  forbidden_input_pattern jsonb,
  when_unmet text not null default 'skip',
  when_exhausted text not null default 'fail',
  created_at timestamptz not null default now(),
  queue_name text not null generated always as (lower(flow_slug)) stored,
  constraint steps_pkey primary key (flow_slug, step_slug),
  constraint steps_flow_slug_step_index_key unique (flow_slug, step_index),
  constraint steps_flow_slug_fkey foreign key (flow_slug) references pgflow.flows (flow_slug),
  constraint steps_step_slug_check check (pgflow.is_valid_slug(step_slug)),
  constraint steps_step_type_check check (step_type in ('single', 'map')),
  constraint steps_deps_count_check check (deps_count >= 0),
  constraint opt_max_attempts_is_nonnegative
    check (opt_max_attempts is null or opt_max_attempts >= 0),
  constraint opt_base_delay_is_nonnegative
    check (opt_base_delay is null or opt_base_delay >= 0),
  constraint opt_timeout_is_positive check (opt_timeout is null or opt_timeout > 0),
  constraint opt_start_delay_is_nonnegative
    check (opt_start_delay is null or opt_start_delay >= 0),
  constraint required_input_pattern_is_object
    check (required_input_pattern is null or jsonb_typeof(required_input_pattern) = 'object'),
  constraint forbidden_input_pattern_is_object
    check (forbidden_input_pattern is null or jsonb_typeof(forbidden_input_pattern) = 'object'),
  constraint when_unmet_is_valid check (when_unmet in ('fail', 'skip', 'skip-cascade')),
  constraint when_exhausted_is_valid check (when_exhausted in ('fail', 'skip', 'skip-cascade'))
);

-- deps: the edges of a flow; step_slug waits for dep_slug. The key finds the dependents of a
-- step, the index its dependencies.
create table if not exists pgflow.deps (
  flow_slug text not null,
  dep_slug text not null,
  step_slug text not null,
  created_at timestamptz not null default now(),
  constraint deps_pkey primary key (flow_slug, dep_slug, step_slug),
  constraint deps_flow_slug_fkey foreign key (flow_slug) references pgflow.flows (flow_slug),
  constraint deps_flow_slug_dep_slug_fkey foreign key (flow_slug, dep_slug)
    references pgflow.steps (flow_slug, step_slug),
  constraint deps_flow_slug_step_slug_fkey foreign key (flow_slug, step_slug)
    references pgflow.steps (flow_slug, step_slug),
  constraint deps_check check (dep_slug <> step_slug)
);
create index if not exists idx_deps_by_flow_step on pgflow.deps (flow_slug, step_slug);

-- runs: executions of flows. run_id stays the first column: a sibling reads it by position.
-- No index mentions a column that a report changes, so that every update of a run is HOT.
-- error_message says why a run failed.
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

-- step_states: one row per run and step, made with the run. Counts down to readiness
-- (remaining_deps) and to completion (remaining_tasks). The key serves every lookup of the
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
create index if not exists idx_step_states_flow_slug on pgflow.step_states (flow_slug, step_slug);

-- workers: who polls a queue. Workers write it themselves: they insert their row, renew
-- last_heartbeat_at, and read deprecated_at, which an operator sets to replace them.
create table if not exists pgflow.workers (
  worker_id uuid not null,
  queue_name text not null,
  function_name text not null,
  started_at timestamptz not null default now(),
  deprecated_at timestamptz,
  stopped_at timestamptz,
  last_heartbeat_at timestamptz not null default now(),
  constraint workers_pkey primary key (worker_id)
) with (fillfactor = 50);
create index if not exists idx_workers_queue_name on pgflow.workers (queue_name);

-- step_tasks: units of work; one for a single step, one per element for a map. Each has a
-- message in the flow's queue. A task of a skipped step is skipped.
-- No index mentions a column that a claim or a report changes, so that both are HOT: started
-- tasks are found through their messages, and those few without one, or whose message went as
-- recovery gave them up, through the last index.
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
  queue_name text not null generated always as (lower(flow_slug)) stored,
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

-- worker_functions: HTTP functions that ensure_workers wakes on the hosted platform.
create table if not exists pgflow.worker_functions (
  function_name text not null,
  enabled boolean not null default true,
  debounce interval not null default '6 seconds',
  last_invoked_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  start_mode text not null default 'http',
  constraint worker_functions_pkey primary key (function_name),
  constraint worker_functions_debounce_check check (debounce >= interval '1 second'),
  constraint worker_functions_start_mode_check check (start_mode in ('http', 'process'))
);
