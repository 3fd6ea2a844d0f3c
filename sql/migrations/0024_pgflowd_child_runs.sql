-- Migration 0024: runs that tasks start, and wait for. A released migration never changes.

alter table pgflowd.runs
  add column if not exists parent_run_id uuid,
  add column if not exists parent_step text,
  add column if not exists parent_index int;
create index if not exists runs_parent
  on pgflowd.runs (parent_run_id, parent_step, parent_index) where parent_run_id is not null;

alter table pgflowd.waits
  drop constraint if exists kind_is_known,
  add constraint kind_is_known
    check (kind in ('sleep', 'signal', 'need', 'limit', 'paused', 'quarantined', 'runs')),
  drop constraint if exists a_name_says_what_for,
  add constraint a_name_says_what_for
    check ((kind in ('sleep', 'paused', 'quarantined', 'runs')) = (name is null));
