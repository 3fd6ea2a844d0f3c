-- Migration 0019: runs of which no task begins. A released migration never changes.

alter table pgflow.runs add column if not exists is_paused boolean not null default false;
