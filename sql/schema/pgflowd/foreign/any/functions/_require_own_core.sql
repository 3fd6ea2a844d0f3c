-- _require_own_core(what): raises PF035, since the claims and reports of a foreign core do not heed what
-- is asked for.
-- Called by: pause, pause_flow, _set_starts, _write_schedule.   Locks: nothing.
create or replace function pgflowd._require_own_core(what text)
returns void language plpgsql stable set search_path = '', pg_temp as $$
begin
  raise exception 'only the core of pgflowd knows %', _require_own_core.what
    using errcode = 'PF035', hint = 'see `pgflowd db status` for the core of this database';
end $$;
