-- Migration 0008: the doorbells of sleeping workers. A migration never changes.

create unlogged table if not exists pgflowd.doorbells (
  queue text not null,
  owner uuid not null,
  armed_at timestamptz not null default now(),
  constraint doorbells_pkey primary key (queue, owner)
);
