-- Migration 0010: until when each sweeper sleeps. A released migration never changes.

create unlogged table if not exists pgflowd.sweepers (
  sweeper_id uuid not null,
  sleeps_until timestamptz not null,
  constraint sweepers_pkey primary key (sweeper_id)
);
