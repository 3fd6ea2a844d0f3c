-- Migration 0039: the daemons of all machines. A released migration never changes.

create table if not exists pgflowd.daemons (
  daemon_id uuid not null,
  name text not null,
  host text not null,
  pid int not null,
  version text not null,
  started_at timestamptz not null,
  heartbeat_at timestamptz not null default now(),
  alive_until timestamptz not null,
  state text not null,
  status jsonb not null,
  constraint daemons_pkey primary key (daemon_id)
);
