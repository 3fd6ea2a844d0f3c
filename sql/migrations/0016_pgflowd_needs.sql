-- Migration 0016: what steps need of a worker, and what workers have. A released migration never
-- changes.

create table if not exists pgflowd.step_options (
  flow_slug text not null,
  step_slug text not null,
  needs text[],
  constraint step_options_pkey primary key (flow_slug, step_slug),
  constraint step_options_step_fkey foreign key (flow_slug, step_slug)
    references pgflow.steps (flow_slug, step_slug) on delete cascade
);
create table if not exists pgflowd.worker_caps (
  worker_id uuid not null,
  caps text[] not null,
  constraint worker_caps_pkey primary key (worker_id),
  constraint worker_caps_worker_fkey foreign key (worker_id)
    references pgflow.workers (worker_id) on delete cascade
);

alter table pgflowd.waits
  drop constraint if exists kind_is_known,
  add constraint kind_is_known check (kind in ('sleep', 'signal', 'need')),
  drop constraint if exists only_a_signal_has_a_name,
  drop constraint if exists all_but_a_sleep_have_a_name,
  add constraint all_but_a_sleep_have_a_name check ((kind = 'sleep') = (name is null)),
  drop constraint if exists something_ends_it,
  add constraint something_ends_it check (kind <> 'sleep' or due_at is not null);
create index if not exists waits_need on pgflowd.waits (flow_slug, name, nr) where kind = 'need';

drop function if exists pgflowd._free(uuid[], text[], int[]);
drop function if exists pgflowd.list_tasks(uuid, text, text[], int);
