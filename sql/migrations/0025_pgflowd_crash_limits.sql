-- Migration 0025: how many workers a task of a step may end, and what happens then. A released migration
-- never changes.

alter table pgflowd.step_options
  add column if not exists crash_limit int,
  add column if not exists on_crash_limit text,
  drop constraint if exists crash_limit_is_one,
  add constraint crash_limit_is_one check (crash_limit between 1 and 1000),
  drop constraint if exists on_crash_limit_is_known,
  add constraint on_crash_limit_is_known check (on_crash_limit in ('fail', 'quarantine'));
