-- waits: what a queued task waits for. It has no message meanwhile, so no claim meets it.
-- `name`: of the signal; for `need` the caps that a worker must have, sorted, with commas between;
-- for `limit` its key, and then `needs` is what a task needs besides that was handed on.
-- `checkpoint`: under which name the task will find how the wait ended; null where nothing is to be
-- found. `due_at`: the end of a sleep, or of the patience with a signal or runs; while the run is paused
-- `rest` instead, what was left of it. Who waits for runs has a row of `awaits` for each that has not
-- ended yet. `nr`: who waited first; `is_paused`: for a limit, out of the line while the run is paused,
-- so that nobody walks past it. The table turns over completely, hence the frequent vacuum.
create table if not exists pgflowd.waits (
  run_id uuid not null,
  step_slug text not null,
  task_index int not null,
  flow_slug text not null,
  kind text not null,
  name text,
  checkpoint text,
  due_at timestamptz,
  rest interval,
  nr bigint generated always as identity,
  since timestamptz not null default now(),
  why text,
  needs text,
  is_paused boolean not null default false,
  constraint waits_pkey primary key (run_id, step_slug, task_index),
  constraint waits_task_fkey foreign key (run_id, step_slug, task_index)
    references pgflow.step_tasks (run_id, step_slug, task_index) on delete cascade,
  constraint kind_is_known
    check (kind in ('sleep', 'signal', 'need', 'limit', 'paused', 'quarantined', 'runs')),
  constraint a_name_says_what_for
    check ((kind in ('sleep', 'paused', 'quarantined', 'runs')) = (name is null)),
  constraint something_ends_it
    check (kind <> 'sleep' or due_at is not null or rest is not null),
  constraint a_rest_has_no_date check (due_at is null or rest is null)
) with (autovacuum_vacuum_scale_factor = 0.02);
create index if not exists waits_due_at on pgflowd.waits (due_at) where due_at is not null;
create index if not exists waits_signal on pgflowd.waits (run_id, name, nr) where kind = 'signal';
create index if not exists waits_need on pgflowd.waits (flow_slug, name, nr) where kind = 'need';
create index if not exists waits_limit
  on pgflowd.waits (name, flow_slug, nr) where kind = 'limit' and not is_paused;
create index if not exists waits_flow_slug on pgflowd.waits (flow_slug, nr);
create index if not exists waits_quarantined
  on pgflowd.waits (since) where kind = 'quarantined';
