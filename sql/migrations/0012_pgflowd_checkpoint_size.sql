-- Migration 0012: a checkpoint knows its size, since all those of a task are read at once. A released
-- migration never changes.

alter table pgflowd.checkpoints add column if not exists
  size int not null generated always as (octet_length(data::text)) stored;
