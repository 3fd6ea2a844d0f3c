-- workers: the workers that poll a queue. Each writes its row itself: it inserts the row, renews
-- last_heartbeat_at, and reads deprecated_at, which an operator sets to replace the worker.
create table if not exists pgflow.workers (
  worker_id uuid not null,
  queue_name text not null,
  function_name text not null,
  started_at timestamptz not null default now(),
  deprecated_at timestamptz,
  stopped_at timestamptz,
  last_heartbeat_at timestamptz not null default now(),
  constraint workers_pkey primary key (worker_id)
) with (fillfactor = 50);
create index if not exists idx_workers_queue_name on pgflow.workers (queue_name);
