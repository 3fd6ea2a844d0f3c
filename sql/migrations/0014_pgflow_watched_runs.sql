-- Migration 0014: whether somebody waits for the end of a run. A released migration never changes.

alter table pgflow.runs add column if not exists is_watched boolean not null default false;
