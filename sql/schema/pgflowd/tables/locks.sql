-- locks: rows that are there to be locked, until the end of a transaction, by who is to decide alone: about
-- a singleton key, a limit, the definition of a flow, or a `work` that one sweep at a time does. Not
-- advisory locks, which any role that may connect can hold for ever: a row takes rights. A row means
-- nothing while nobody has it locked: it is made at the first use (_lock_name), and pruned (_prune_locks).
create table if not exists pgflowd.locks (
  kind text not null,
  name text not null,
  constraint locks_pkey primary key (kind, name),
  constraint kind_of_lock_is_known check (kind in ('singleton', 'limit', 'flow', 'work'))
);
