-- Migration 0044: what a flow says of each start. A released migration never changes.

alter table pgflow.flows add column if not exists starts jsonb;
drop function if exists pgflow._lock_starts(text);
