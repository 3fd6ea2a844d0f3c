-- Migration 0026: steps whose tasks complete, with a mark, when their attempts are used up. A released
-- migration never changes.

alter table pgflow.steps add column if not exists settles boolean not null default false;
