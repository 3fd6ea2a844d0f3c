-- _recover_tasks(run_ids, step_slugs, task_indexes, reason, only_lapsed): recovers these tasks, see
-- _recover_some. Where one raises, its lease is taken for a minute longer, and the others are dealt with; a
-- notice, PF013, says which: its detail is an object with run, step, task_index and error.
-- Called by: _sweep_leased, sweep_attempts.
-- Locks: see _recover_some; the caller holds the tasks.
create or replace function pgflowd._recover_tasks(
  run_ids uuid[], step_slugs text[], task_indexes int[], reason text, only_lapsed boolean,
  out recovered int, out given_up int)
language plpgsql set search_path = '', pg_temp as $$
declare
  one record;
begin
  recovered := 0;
  given_up := 0;
  if coalesce(_recover_tasks.run_ids, '{}') = '{}' then
    return;
  end if;
  begin
    select done.recovered, done.given_up into recovered, given_up
      from pgflowd._recover_some(_recover_tasks.run_ids, _recover_tasks.step_slugs,
             _recover_tasks.task_indexes, _recover_tasks.reason, _recover_tasks.only_lapsed) as done;
  exception when others then
    recovered := 0;
    given_up := 0;
    for nr in 1 .. cardinality(_recover_tasks.run_ids) loop
      begin
        select done.* into one
          from pgflowd._recover_some(
                 _recover_tasks.run_ids[nr : nr], _recover_tasks.step_slugs[nr : nr],
                 _recover_tasks.task_indexes[nr : nr], _recover_tasks.reason,
                 _recover_tasks.only_lapsed) as done;
        recovered := recovered + one.recovered;
        given_up := given_up + one.given_up;
      exception when others then
        perform pgflowd._postpone_lease(
          _recover_tasks.run_ids[nr], _recover_tasks.step_slugs[nr], _recover_tasks.task_indexes[nr],
          sqlerrm);
      end;
    end loop;
  end;
end $$;
