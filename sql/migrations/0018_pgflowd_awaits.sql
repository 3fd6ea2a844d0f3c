-- Migration 0018: runs that begin after others. A released migration never changes.

create table if not exists pgflowd.awaits (
  awaited uuid not null,
  run_id uuid not null,
  step_slug text not null default '',
  task_index int not null default -1,
  due_at timestamptz default now(),
  has_completed boolean,
  constraint awaits_pkey primary key (awaited, run_id, step_slug, task_index),
  constraint an_end_is_told check (has_completed is null or due_at is not null)
) with (autovacuum_vacuum_scale_factor = 0.02);
create index if not exists awaits_waiter on pgflowd.awaits (run_id, step_slug, task_index);
create index if not exists awaits_due_at on pgflowd.awaits (due_at) where due_at is not null;

alter table pgflowd.runs
  add column if not exists after_mode text,
  drop constraint if exists a_planned_run_is_due,
  add constraint a_planned_run_is_due
    check (state <> 'planned' or due_at is not null or singleton_key is not null
           or after_mode is not null),
  drop constraint if exists after_mode_is_known,
  add constraint after_mode_is_known check (after_mode in ('completed', 'ended'));
