-- Migration 0021: limits, and the places of them that are taken. A released migration never changes.

alter table pgflowd.step_options
  add column if not exists limit_slots int,
  add column if not exists limit_name text,
  add column if not exists limit_path text[],
  drop constraint if exists a_limit_has_places,
  add constraint a_limit_has_places
    check (limit_slots > 0 and limit_name is not null or limit_slots is null);
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

alter table pgflowd.attempts add column if not exists limit_key text;
alter table pgflowd.waits
  add column if not exists needs text,
  drop constraint if exists kind_is_known,
  add constraint kind_is_known check (kind in ('sleep', 'signal', 'need', 'limit', 'paused'));
create index if not exists waits_limit on pgflowd.waits (name, nr) where kind = 'limit';

drop function if exists pgflowd._take_needed(text, text, int, int, text[]);
drop type if exists pgflowd.element cascade;
