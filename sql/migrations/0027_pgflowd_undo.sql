-- Migration 0027: what undoes a step, when a run is undone, and how far that is. A released migration
-- never changes.

alter table pgflowd.step_options
  add column if not exists undo text,
  drop constraint if exists undo_is_known,
  add constraint undo_is_known check (undo in ('completed', 'attempted'));

create table if not exists pgflowd.flow_options (
  flow_slug text not null,
  on_failure text,
  on_cancel text,
  constraint flow_options_pkey primary key (flow_slug),
  constraint flow_options_flow_slug_fkey foreign key (flow_slug)
    references pgflow.flows (flow_slug) on delete cascade,
  constraint on_failure_is_known check (on_failure in ('keep', 'undo')),
  constraint on_cancel_is_known check (on_cancel in ('keep', 'undo'))
);

alter table pgflowd.runs
  add column if not exists undo_state text,
  add column if not exists undo_generation int,
  add column if not exists undo_wanted_at timestamptz,
  add column if not exists undo_by text,
  add column if not exists undo_reason text,
  add column if not exists undo_of uuid,
  drop constraint if exists undo_state_is_known,
  add constraint undo_state_is_known
    check (undo_state in ('wanted', 'undoing', 'undone', 'undo_failed')),
  drop constraint if exists an_undo_has_a_generation,
  add constraint an_undo_has_a_generation
    check ((undo_state is null) = (undo_generation is null)
           and (undo_state is null) = (undo_wanted_at is null));
