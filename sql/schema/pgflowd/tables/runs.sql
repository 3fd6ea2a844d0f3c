-- runs: what a run has besides its row in pgflow.runs: wishes of its start, and how it was ended from
-- outside. Only runs that need one have a row. A run that may not begin yet is `planned`: it has its row
-- here only, so nobody can start it early; `ended` is one that never began. `due_at`: when the sweep
-- looks at it, to start it or to end it. `singleton_key`: one run at a time has it (`holds_key`), the
-- others wait in line, by `created_at`; one that `replaces` ends those before it. `after_mode`: how a
-- planned run waits for others (awaits); null once it waits for none. `created_at`, `created_by`: when
-- somebody asked for the run, and who. `parent_run_id`, `parent_step`, `parent_index`: the task that has
-- started it, as a child of its run. `paused_at`: since when none of its tasks begins. `undo_state`: how
-- far its undo is, once one is wanted, and by whom (nobody: it failed or was cancelled);
-- `undo_generation` is the number of that undo, which is a run of its own (_undo_run_id), and says in
-- `undo_of` what it undoes. `traceparent`, `tracestate`: the trace of the caller, as W3C writes it;
-- without one nothing is stored. `title`: what its flow makes of the input for people. Without a foreign key to pgflow.runs, hence; what deletes a run deletes
-- its row (_forget_runs). The one to flows refuses an unknown flow, and deletes what is planned for a
-- flow that is deleted.
create table if not exists pgflowd.runs (
  run_id uuid not null,
  flow_slug text not null,
  state text not null default 'started',
  input jsonb,
  created_at timestamptz not null default clock_timestamp(),
  created_by text,
  start_at timestamptz,
  expires_at timestamptz,
  due_at timestamptz,
  labels jsonb,
  singleton_key text,
  holds_key boolean not null default false,
  replaces boolean not null default false,
  after_mode text,
  expired_at timestamptz,
  cancelled_at timestamptz,
  cancelled_by text,
  cancel_reason text,
  paused_at timestamptz,
  paused_by text,
  pause_reason text,
  parent_run_id uuid,
  parent_step text,
  parent_index int,
  undo_state text,
  undo_generation int,
  undo_wanted_at timestamptz,
  undo_by text,
  undo_reason text,
  undo_of uuid,
  traceparent text,
  tracestate text,
  title text,
  constraint runs_pkey primary key (run_id),
  constraint runs_flow_slug_fkey foreign key (flow_slug)
    references pgflow.flows (flow_slug) on delete cascade,
  constraint state_is_known check (state in ('planned', 'started', 'ended')),
  constraint the_input_is_here_until_the_start check ((state = 'started') = (input is null)),
  constraint a_planned_run_is_due
    check (state <> 'planned' or due_at is not null or singleton_key is not null
           or after_mode is not null),
  constraint after_mode_is_known check (after_mode in ('completed', 'ended')),
  constraint who_holds_a_key_has_begun
    check (not holds_key or (singleton_key is not null and state = 'started')),
  constraint undo_state_is_known
    check (undo_state in ('wanted', 'undoing', 'undone', 'undo_failed')),
  constraint an_undo_has_a_generation
    check ((undo_state is null) = (undo_generation is null)
           and (undo_state is null) = (undo_wanted_at is null)),
  constraint a_traceparent_is_one check (
    traceparent ~ '^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$'),
  constraint a_tracestate_is_short check (length(tracestate) <= 512),
  constraint a_tracestate_has_a_traceparent check (tracestate is null or traceparent is not null)
) with (fillfactor = 80);
create index if not exists runs_due_at on pgflowd.runs (due_at) where due_at is not null;
create index if not exists runs_flow_slug on pgflowd.runs (flow_slug, state, created_at desc);
create index if not exists runs_not_started
  on pgflowd.runs (created_at desc) where state <> 'started';
create index if not exists runs_labels
  on pgflowd.runs using gin (labels jsonb_path_ops) where labels is not null;
create unique index if not exists runs_key_holder on pgflowd.runs (singleton_key) where holds_key;
create index if not exists runs_in_line
  on pgflowd.runs (singleton_key, created_at, run_id)
  where state = 'planned' and singleton_key is not null;
create index if not exists runs_replacing
  on pgflowd.runs (singleton_key, created_at, run_id) where state = 'planned' and replaces;
create index if not exists runs_parent
  on pgflowd.runs (parent_run_id, parent_step, parent_index) where parent_run_id is not null;
create index if not exists runs_undo_of on pgflowd.runs (undo_of) where undo_of is not null;
