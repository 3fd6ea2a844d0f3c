-- Migration 0013: runs that begin later, and what else is wished of a run. A released migration never
-- changes.
-- A planned run has no row in pgflow.runs yet, so the foreign key to it goes.

alter table pgflowd.runs
  drop constraint if exists runs_run_id_fkey,
  add column if not exists flow_slug text,
  add column if not exists state text not null default 'started',
  add column if not exists input jsonb,
  add column if not exists created_at timestamptz not null default clock_timestamp(),
  add column if not exists start_at timestamptz,
  add column if not exists expires_at timestamptz,
  add column if not exists due_at timestamptz,
  add column if not exists labels jsonb,
  add column if not exists expired_at timestamptz,
  set (fillfactor = 80);
update pgflowd.runs as ours set flow_slug = run.flow_slug, created_at = run.started_at
  from pgflow.runs as run where run.run_id = ours.run_id and ours.flow_slug is null;
alter table pgflowd.runs
  alter column flow_slug set not null,
  drop constraint if exists runs_flow_slug_fkey,
  add constraint runs_flow_slug_fkey foreign key (flow_slug)
    references pgflow.flows (flow_slug) on delete cascade,
  drop constraint if exists state_is_known,
  add constraint state_is_known check (state in ('planned', 'started', 'ended')),
  drop constraint if exists the_input_is_here_until_the_start,
  add constraint the_input_is_here_until_the_start check ((state = 'started') = (input is null)),
  drop constraint if exists a_planned_run_is_due,
  add constraint a_planned_run_is_due check (state <> 'planned' or due_at is not null);
create index if not exists runs_due_at on pgflowd.runs (due_at) where due_at is not null;
create index if not exists runs_flow_slug on pgflowd.runs (flow_slug, state, created_at desc);
create index if not exists runs_not_started
  on pgflowd.runs (created_at desc) where state <> 'started';
create index if not exists runs_labels
  on pgflowd.runs using gin (labels jsonb_path_ops) where labels is not null;

drop function if exists pgflowd.list_runs(text, text[], interval, int);
drop function if exists pgflowd._list_runs(text, text[], interval, int);
