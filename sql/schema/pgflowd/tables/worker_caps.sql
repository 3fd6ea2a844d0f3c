-- worker_caps: the caps of a worker, if it has any. Claims do not read it, since they bring theirs
-- along; it says who could do what waits for a worker.
create table if not exists pgflowd.worker_caps (
  worker_id uuid not null,
  caps text[] not null,
  constraint worker_caps_pkey primary key (worker_id),
  constraint worker_caps_worker_fkey foreign key (worker_id)
    references pgflow.workers (worker_id) on delete cascade
);
