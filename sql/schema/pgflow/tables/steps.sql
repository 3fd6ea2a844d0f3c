-- steps: the nodes of a flow. step_index is topological, because a step is added after its
-- deps. Options that are null are inherited from the flow. queue_name is what workers from
-- 0.17 on ask for. `is_gated`: not every worker may take its tasks at any time (pgflowd.step_options).
-- `settles`: a task of it whose attempts are used up completes, with an output that says so (_settle_tasks).
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
  queue_name text not null generated always as (lower(flow_slug collate "C")) stored,
  is_gated boolean not null default false,
  settles boolean not null default false,
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
