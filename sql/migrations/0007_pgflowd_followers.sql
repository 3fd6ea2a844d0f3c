-- Migration 0007: the table of who follows which run. A released migration never changes.

create unlogged table if not exists pgflowd.followers (
  run_id uuid not null,
  with_output boolean not null,
  expires_at timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index if not exists idx_followers_run_id on pgflowd.followers (run_id);
create index if not exists idx_followers_expires_at on pgflowd.followers (expires_at);
create index if not exists idx_followers_with_output
  on pgflowd.followers (expires_at) where with_output;
