-- Migration 0050: how far spans were exported, and runs that no report has ended. A released migration never changes.

create table if not exists pgflowd.traces (
  is_one boolean not null default true,
  token bigint not null,
  open bigint[] not null default '{}',
  up_to bigint not null,
  writers text[] not null default '{}',
  seen_at timestamptz not null default now(),
  constraint traces_pkey primary key (is_one),
  constraint there_is_one_cursor check (is_one)
);
create table if not exists pgflowd.ended_runs (
  run_id uuid not null,
  constraint ended_runs_pkey primary key (run_id)
);
