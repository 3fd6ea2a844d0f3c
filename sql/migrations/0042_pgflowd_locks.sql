-- Migration 0042: rows to be locked, instead of advisory locks. A released migration never changes.

create table if not exists pgflowd.locks (
  kind text not null,
  name text not null,
  constraint locks_pkey primary key (kind, name),
  constraint kind_of_lock_is_known check (kind in ('singleton', 'limit', 'flow', 'work'))
);
