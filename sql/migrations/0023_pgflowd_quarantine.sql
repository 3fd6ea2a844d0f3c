-- Migration 0023: tasks that are set aside since they ended too many workers. A released migration never
-- changes.

alter table pgflowd.waits
  drop constraint if exists kind_is_known,
  add constraint kind_is_known
    check (kind in ('sleep', 'signal', 'need', 'limit', 'paused', 'quarantined')),
  drop constraint if exists a_name_says_what_for,
  add constraint a_name_says_what_for
    check ((kind in ('sleep', 'paused', 'quarantined')) = (name is null));
create index if not exists waits_quarantined
  on pgflowd.waits (since) where kind = 'quarantined';
