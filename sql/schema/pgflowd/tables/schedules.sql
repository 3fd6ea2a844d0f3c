-- schedules: what starts runs by the calendar. `due_at`: when the sweeper looks at it next, which is its
-- next tick, or earlier where that has not been computed yet; null while it is paused. `ticks_from`:
-- ticks from then on have not been dealt with. `ticked_at`: when it was looked at last; `last_at`,
-- `last_run_id`: the last tick that was run, and its run. `error`, `failed_at`: why its last tick
-- started no run. `origin`: `code` for one that a flow asks for, and each definition writes anew;
-- `operator` for all others.
create table if not exists pgflowd.schedules (
  name text not null,
  flow_slug text not null,
  cron text not null,
  timezone text not null default 'UTC',
  input jsonb not null default '{}',
  overlap text not null default 'skip',
  catchup text not null default 'one',
  origin text not null default 'operator',
  due_at timestamptz default now(),
  ticks_from timestamptz not null default now(),
  ticked_at timestamptz,
  last_at timestamptz,
  last_run_id uuid,
  error text,
  failed_at timestamptz,
  paused_at timestamptz,
  paused_by text,
  changed_at timestamptz not null default now(),
  changed_by text,
  constraint schedules_pkey primary key (name),
  constraint schedules_flow_slug_fkey foreign key (flow_slug)
    references pgflow.flows (flow_slug) on delete cascade,
  constraint overlap_is_known check (overlap in ('skip', 'allow', 'wait', 'replace')),
  constraint catchup_is_known check (catchup in ('one', 'none', 'all')),
  constraint origin_is_known check (origin in ('code', 'operator')),
  constraint a_name_fits_into_a_key check (length(name) between 1 and 120),
  constraint it_is_due_unless_it_is_paused check ((due_at is null) = (paused_at is not null)),
  constraint an_error_has_a_time check ((error is null) = (failed_at is null))
) with (fillfactor = 80);
create index if not exists schedules_due_at on pgflowd.schedules (due_at) where due_at is not null;
create index if not exists schedules_ticked_at
  on pgflowd.schedules (ticked_at) where ticked_at is not null;
create index if not exists schedules_error on pgflowd.schedules (name) where error is not null;
create index if not exists schedules_flow_slug on pgflowd.schedules (flow_slug);
create index if not exists schedules_error on pgflowd.schedules (name) where error is not null;
