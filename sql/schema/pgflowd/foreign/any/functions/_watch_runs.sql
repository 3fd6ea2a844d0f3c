-- _watch_runs(run_ids): raises, since a foreign core does not say when a run ends.
-- Called by: _await_runs, _begin_first, _process_runs, reschedule, _start, _start_undo, _watch_awaited.   Locks: nothing.
create or replace function pgflowd._watch_runs(run_ids uuid[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  raise exception 'only the core of pgflowd knows runs that wait for the end of others'
    using errcode = 'PF035', hint = 'leave that wish out';
end $$;
