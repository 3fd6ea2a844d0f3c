-- _require_own_core(what): does nothing, since this is pgflowd's own core.
-- Called by: pause, pause_flow, _set_starts, _write_schedule.   Locks: nothing.
create or replace function pgflowd._require_own_core(what text)
returns void language sql stable set search_path = '', pg_temp as $$
  select;
$$;
