-- awaits: who waits for the end of which run: a planned run, which then begins (its step is '', its index
-- -1), or a task. `due_at`: when the sweep looks at the row, to have the awaited run watched, or to tell who
-- waits; null while the end is still to come and will be marked. `has_completed`: how the run ended;
-- null until that is known.
-- Without foreign keys, as both runs may be planned. What deletes a run deletes its rows, and tells those
-- who wait for it (_forget_runs). The table turns over completely, hence the frequent vacuum.
create table if not exists pgflowd.awaits (
  awaited uuid not null,
  run_id uuid not null,
  step_slug text not null default '',
  task_index int not null default -1,
  due_at timestamptz default now(),
  has_completed boolean,
  constraint awaits_pkey primary key (awaited, run_id, step_slug, task_index),
  constraint an_end_is_told check (has_completed is null or due_at is not null)
) with (autovacuum_vacuum_scale_factor = 0.02);
create index if not exists awaits_waiter on pgflowd.awaits (run_id, step_slug, task_index);
create index if not exists awaits_due_at on pgflowd.awaits (due_at) where due_at is not null;
