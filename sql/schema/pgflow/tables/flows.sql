-- flows: a flow and its default options, which may be changed by a plain UPDATE at any time.
-- flow_type is `job` (one step) or `flow`. Two slugs that differ in case only would
-- share one queue, hence the second index. `is_gated`: a step of it is. `starts`: what each start has from
-- its input, unless it says otherwise: title, labels, expires, singleton (pgflowd.start); null of most.
create table if not exists pgflow.flows (
  flow_slug text not null,
  opt_max_attempts int not null default 3,
  opt_base_delay int not null default 1,
  opt_timeout int not null default 60,
  created_at timestamptz not null default now(),
  flow_type text not null default 'flow',
  is_gated boolean not null default false,
  starts jsonb,
  constraint flows_pkey primary key (flow_slug),
  constraint slug_is_valid check (pgflow.is_valid_slug(flow_slug)),
  constraint opt_max_attempts_is_nonnegative check (opt_max_attempts >= 0),
  constraint opt_base_delay_is_nonnegative check (opt_base_delay >= 0),
  constraint opt_timeout_is_positive check (opt_timeout > 0),
  constraint flow_type_is_valid check (flow_type in ('flow', 'job'))
);
create unique index if not exists flows_lower_flow_slug_key on pgflow.flows (lower(flow_slug collate "C"));
