-- checkpoints: what a task has saved under a name, and how each of its waits ended. The next attempt
-- reads them. They stay until the run is deleted. `version`: of the code that saved it; `token`: the
-- attempt that did, 0 where a wait ended; `size`: bytes of the text, as a worker reads it.
create table if not exists pgflowd.checkpoints (
  run_id uuid not null,
  step_slug text not null,
  task_index int not null,
  name text not null,
  version int not null default 1,
  token bigint not null,
  saved_at timestamptz not null default clock_timestamp(),
  data jsonb not null,
  size int not null generated always as (octet_length(data::text)) stored,
  constraint checkpoints_pkey primary key (run_id, step_slug, task_index, name),
  constraint checkpoints_task_fkey foreign key (run_id, step_slug, task_index)
    references pgflow.step_tasks (run_id, step_slug, task_index) on delete cascade
);
