-- slots: the places of limits that are taken. A place is that of a lease, and is taken while the attempt
-- of its task is open: so it cannot leak, whoever dies. `given_at`: the task is next and has not begun
-- yet. `free_at`: a report has closed the attempt, or a run that waits for a place was resumed, and from
-- then on somebody is to look who is next. Other
-- rows whose attempt has ended are cleared away by the next to count (_count_slots). `most`: the limit
-- when the place was taken.
create table if not exists pgflowd.slots (
  run_id uuid not null,
  step_slug text not null,
  task_index int not null,
  limit_key text not null,
  most int not null,
  given_at timestamptz,
  free_at timestamptz,
  constraint slots_pkey primary key (run_id, step_slug, task_index),
  constraint slots_task_fkey foreign key (run_id, step_slug, task_index)
    references pgflow.step_tasks (run_id, step_slug, task_index) on delete cascade
) with (autovacuum_vacuum_scale_factor = 0.02);
create index if not exists slots_limit_key on pgflowd.slots (limit_key);
create index if not exists slots_free_at on pgflowd.slots (free_at) where free_at is not null;
