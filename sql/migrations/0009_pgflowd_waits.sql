-- Migration 0009: tasks that wait, what they have saved, and signals. A released migration never
-- changes.
-- The elements of a report have one more field, so their type and what uses it is made anew.

create table if not exists pgflowd.waits (
  run_id uuid not null,
  step_slug text not null,
  task_index int not null,
  flow_slug text not null,
  kind text not null,
  name text,
  checkpoint text,
  due_at timestamptz,
  nr bigint generated always as identity,
  since timestamptz not null default now(),
  why text,
  constraint waits_pkey primary key (run_id, step_slug, task_index),
  constraint waits_task_fkey foreign key (run_id, step_slug, task_index)
    references pgflow.step_tasks (run_id, step_slug, task_index) on delete cascade,
  constraint kind_is_known check (kind in ('sleep', 'signal')),
  constraint only_a_signal_has_a_name check ((kind = 'signal') = (name is not null)),
  constraint something_ends_it check (kind = 'signal' or due_at is not null)
) with (autovacuum_vacuum_scale_factor = 0.02);
create index if not exists waits_due_at on pgflowd.waits (due_at) where due_at is not null;
create index if not exists waits_signal on pgflowd.waits (run_id, name, nr) where kind = 'signal';
create index if not exists waits_flow_slug on pgflowd.waits (flow_slug, nr);

create table if not exists pgflowd.checkpoints (
  run_id uuid not null,
  step_slug text not null,
  task_index int not null,
  name text not null,
  version int not null default 1,
  token bigint not null,
  saved_at timestamptz not null default clock_timestamp(),
  data jsonb not null,
  constraint checkpoints_pkey primary key (run_id, step_slug, task_index, name),
  constraint checkpoints_task_fkey foreign key (run_id, step_slug, task_index)
    references pgflow.step_tasks (run_id, step_slug, task_index) on delete cascade
);

create table if not exists pgflowd.signals (
  signal_id bigint generated always as identity,
  run_id uuid not null,
  name text not null,
  payload jsonb not null default 'null',
  dedup text,
  sent_by text,
  sent_at timestamptz not null default now(),
  is_new boolean not null default true,
  step_slug text,
  task_index int,
  consumed_at timestamptz,
  constraint signals_pkey primary key (signal_id),
  constraint consumed_by_a_task check (
    (consumed_at is null) = (step_slug is null) and (consumed_at is null) = (task_index is null))
);
create index if not exists signals_new on pgflowd.signals (signal_id) where is_new;
create index if not exists signals_unused
  on pgflowd.signals (run_id, name, signal_id) where consumed_at is null;
create index if not exists signals_run_id on pgflowd.signals (run_id, signal_id);
create unique index if not exists signals_dedup_key
  on pgflowd.signals (run_id, name, dedup) where dedup is not null;

alter table pgflowd.attempts
  drop constraint if exists outcome_is_known,
  add constraint outcome_is_known check (outcome in (
    'completed', 'failed', 'timed_out', 'crashed', 'released', 'suspended', 'stalled', 'late',
    'lost'));

drop function if exists pgflowd.report(jsonb, text[]);
drop type if exists pgflowd.element cascade;
