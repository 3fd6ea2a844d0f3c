-- Migration 0020: runs and flows that are paused, and what their tasks wait for meanwhile. A released
-- migration never changes.

alter table pgflowd.runs
  add column if not exists paused_at timestamptz,
  add column if not exists paused_by text,
  add column if not exists pause_reason text;
alter table pgflowd.waits
  add column if not exists rest interval,
  drop constraint if exists kind_is_known,
  add constraint kind_is_known check (kind in ('sleep', 'signal', 'need', 'paused')),
  drop constraint if exists all_but_a_sleep_have_a_name,
  drop constraint if exists a_name_says_what_for,
  add constraint a_name_says_what_for check ((kind in ('sleep', 'paused')) = (name is null)),
  drop constraint if exists something_ends_it,
  add constraint something_ends_it
    check (kind <> 'sleep' or due_at is not null or rest is not null),
  drop constraint if exists a_rest_has_no_date,
  add constraint a_rest_has_no_date check (due_at is null or rest is null);
create table if not exists pgflowd.paused_flows (
  flow_slug text not null,
  queue_name text not null generated always as (lower(flow_slug collate "C")) stored,
  paused_at timestamptz not null default now(),
  paused_by text,
  pause_reason text,
  constraint paused_flows_pkey primary key (flow_slug),
  constraint paused_flows_flow_slug_fkey foreign key (flow_slug)
    references pgflow.flows (flow_slug) on delete cascade
);
create index if not exists paused_flows_queue_name on pgflowd.paused_flows (queue_name);

drop function if exists pgflowd.list_flows();
