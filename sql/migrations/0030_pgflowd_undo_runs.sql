-- Migration 0030: which runs undo another one, also in lists. A released migration never changes.

create index if not exists runs_undo_of on pgflowd.runs (undo_of) where undo_of is not null;

drop function if exists pgflowd.list_runs(text, text[], interval, int, jsonb);
drop function if exists pgflowd._list_runs(text, text[], interval, int, jsonb);
-- with two forms of it, a view that names its parameters could mean either
drop view if exists pgflowd.run_status;
drop function if exists pgflowd._run_status(
  text, boolean, bigint, bigint, boolean, boolean, boolean, boolean, boolean);
