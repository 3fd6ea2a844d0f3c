-- _forget_runs(run_ids): deletes the signals of runs that are being deleted, what pgflowd.runs has of them,
-- and for whom they wait, which no foreign key does: all may be there before the run is. Then the first in
-- line for a singleton key that one of them had, or waited for, is due, and who waits for one of them is told
-- that it has not completed. The undo of a run has failed if the run that undoes it is deleted.
-- Called by: _delete_runs, pgflow.delete_flow_and_data.   Locks: these rows.
create or replace function pgflowd._forget_runs(run_ids uuid[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  delete from pgflowd.signals as signal where signal.run_id = any (_forget_runs.run_ids);
  update pgflowd.runs as undone set undo_state = 'undo_failed', due_at = now()
    from pgflowd.runs as gone
   where gone.run_id = any (_forget_runs.run_ids) and undone.run_id = gone.undo_of
     and undone.undo_state = 'undoing'
     and pgflowd._undo_run_id(undone.run_id, undone.undo_generation) = gone.run_id;
  with gone as (
    delete from pgflowd.runs as run where run.run_id = any (_forget_runs.run_ids)
    returning run.singleton_key
  )
  update pgflowd.runs as next set due_at = now()
   where next.run_id in (
     select first.run_id
       from (select distinct gone.singleton_key from gone
              where gone.singleton_key is not null) as freed
      cross join lateral (
        select one.run_id from pgflowd.runs as one
         where one.singleton_key = freed.singleton_key and one.state = 'planned'
           and one.after_mode is null and coalesce(one.start_at <= now(), true)
           and one.run_id <> all (_forget_runs.run_ids)
         order by one.created_at, one.run_id limit 1) as first);
  delete from pgflowd.awaits as one where one.run_id = any (_forget_runs.run_ids);
  update pgflowd.awaits as one set due_at = now(), has_completed = false
   where one.awaited = any (_forget_runs.run_ids) and one.has_completed is null;
  if found then
    perform pgflowd._notify_due(now());
  end if;
end $$;
