-- Migration 0035: versions of flows. A released migration never changes.

create table if not exists pgflowd.versions (
  name text not null,
  version int not null,
  flow_slug text not null,
  fingerprint text not null,
  deployed_at timestamptz not null default now(),
  deployed_by text,
  code text,
  is_current boolean not null default false,
  constraint versions_pkey primary key (name, version),
  constraint versions_flow_slug_key unique (flow_slug),
  constraint versions_flow_fkey foreign key (flow_slug)
    references pgflow.flows (flow_slug) on delete cascade
);
create unique index if not exists versions_current on pgflowd.versions (name) where is_current;
drop function if exists pgflowd.list_flows();
