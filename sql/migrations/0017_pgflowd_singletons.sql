-- Migration 0017: singleton keys, which one run has at a time, and who asked for a run. A released migration
-- never changes.

alter table pgflowd.runs
  add column if not exists created_by text,
  add column if not exists singleton_key text,
  add column if not exists holds_key boolean not null default false,
  add column if not exists replaces boolean not null default false,
  drop constraint if exists a_planned_run_is_due,
  add constraint a_planned_run_is_due
    check (state <> 'planned' or due_at is not null or singleton_key is not null),
  drop constraint if exists who_holds_a_key_has_begun,
  add constraint who_holds_a_key_has_begun
    check (not holds_key or (singleton_key is not null and state = 'started'));
create unique index if not exists runs_key_holder on pgflowd.runs (singleton_key) where holds_key;
create index if not exists runs_in_line
  on pgflowd.runs (singleton_key, created_at, run_id)
  where state = 'planned' and singleton_key is not null;
create index if not exists runs_replacing
  on pgflowd.runs (singleton_key, created_at, run_id) where state = 'planned' and replaces;

drop function if exists pgflowd.list_flows();
