-- Migration 0033: what workers did in each minute. A released migration never changes.

create table if not exists pgflowd.minutes (
  flow_slug text not null,
  is_hour boolean not null default false,
  at timestamptz not null,
  step_slug text not null,
  completed bigint not null default 0,
  failed bigint not null default 0,
  timed_out bigint not null default 0,
  crashed bigint not null default 0,
  ran bigint[],
  waited bigint[],
  constraint minutes_pkey primary key (flow_slug, is_hour, at, step_slug),
  constraint minutes_flow_slug_fkey foreign key (flow_slug)
    references pgflow.flows (flow_slug) on delete cascade
);

drop function if exists pgflowd.waiting_tasks();  -- its rows have more columns now
