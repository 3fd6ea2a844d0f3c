-- Migration 0028: what people and clients did. A released migration never changes.

create table if not exists pgflowd.actions (
  action_id bigint generated always as identity,
  at timestamptz not null default now(),
  actor text not null,
  action text not null,
  flow_slug text,
  run_id uuid,
  step_slug text,
  task_index int,
  reason text,
  data jsonb,
  constraint actions_pkey primary key (action_id)
);
create index if not exists actions_run_id
  on pgflowd.actions (run_id, action_id) where run_id is not null;
create index if not exists actions_at on pgflowd.actions (at);
