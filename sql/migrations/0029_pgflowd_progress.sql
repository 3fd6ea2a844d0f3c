-- Migration 0029: what handlers tell of their progress, and what is kept of their output. A released migration
-- never changes.

alter table pgflowd.attempts
  add column if not exists progress jsonb,
  add column if not exists printed text,
  add column if not exists printed_lines int;

-- their rows have more columns now
drop function if exists pgflowd.list_runs(text, text[], interval, int, jsonb);
drop function if exists pgflowd._list_runs(text, text[], interval, int, jsonb);
drop function if exists pgflowd.run_steps(uuid);
drop function if exists pgflowd.run_troubles(uuid, timestamptz);
