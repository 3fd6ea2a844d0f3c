-- Migration 0015: which steps have a gate, so that not every worker may take their tasks at any time,
-- and which flows have such steps. A released migration never changes.

alter table pgflow.flows add column if not exists is_gated boolean not null default false;
alter table pgflow.steps add column if not exists is_gated boolean not null default false;
