-- paused_flows: the flows of which no task begins. Not a column of pgflow.flows: each start holds a
-- lock of that row, so whoever pauses a busy flow would wait for a moment without any start.
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
