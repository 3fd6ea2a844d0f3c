-- Migration 0010: until when each sweeper sleeps; new signals in the order in which they were sent. A
-- released migration never changes.

create unlogged table if not exists pgflowd.sweepers (
  sweeper_id uuid not null,
  sleeps_until timestamptz not null,
  constraint sweepers_pkey primary key (sweeper_id)
);

drop index if exists pgflowd.signals_new;
create index signals_new on pgflowd.signals (sent_at) where is_new;
