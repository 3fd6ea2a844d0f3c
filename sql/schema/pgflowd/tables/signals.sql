-- signals: what somebody told a run, and which task got it. `is_new`: no sweep has seen it yet; no other
-- index has the order of theirs, so that each look at them is short whatever the statistics say.
-- `sent_by` is what the caller says; `session_role` is the role by which it was connected.
-- Without a foreign key, since a signal must not wait for who has the run's lock; what deletes a run
-- deletes its signals.
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
  session_role text default session_user,
  constraint signals_pkey primary key (signal_id),
  constraint consumed_by_a_task check (
    (consumed_at is null) = (step_slug is null) and (consumed_at is null) = (task_index is null))
);
create index if not exists signals_new on pgflowd.signals (sent_at) where is_new;
create index if not exists signals_unused
  on pgflowd.signals (run_id, name, signal_id) where consumed_at is null;
create index if not exists signals_run_id on pgflowd.signals (run_id, signal_id);
create unique index if not exists signals_dedup_key
  on pgflowd.signals (run_id, name, dedup) where dedup is not null;
