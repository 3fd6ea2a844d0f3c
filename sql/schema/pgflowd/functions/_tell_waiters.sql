-- _tell_waiters(due): tells who waits of those of these awaits whose run has ended, and deletes them. A
-- planned run that waits for nothing more has no `after_mode` any more, and is due. One that was to
-- begin only if all complete is cancelled when one has not (E428); what it still waits for then tells
-- nobody. The wait of a task that waits for no further run is due.
-- Called by: _process_due_awaits.   Locks: nothing; the caller holds the awaits, and who waits.
create or replace function pgflowd._tell_waiters(due pgflowd.awaits[])
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  planned constant uuid[] := array(
    select one.run_id from unnest(due) as one
     where one.has_completed is not null and one.step_slug = '');
begin
  delete from pgflowd.awaits as one using unnest(due) as given
   where given.has_completed is not null
     and one.awaited = given.awaited and one.run_id = given.run_id
     and one.step_slug = given.step_slug and one.task_index = given.task_index;

  update pgflowd.runs as run
     set state = 'ended', due_at = now(), cancelled_at = now(), cancelled_by = 'pgflowd',
         cancel_reason = failed.reason
    from (select distinct on (given.run_id) given.run_id,
                 format('run %s did not complete: it %s (E428)', given.awaited,
                        coalesce('is ' || awaited.status, 'was deleted')) as reason
            from unnest(due) as given
            left join lateral (
             select known.status from pgflowd.run_status as known
              where known.run_id = given.awaited offset 0) as awaited on true
           where not given.has_completed and given.step_slug = '' order by given.run_id) as failed
   where run.run_id = failed.run_id and run.state = 'planned' and run.after_mode = 'completed';

  update pgflowd.runs as run set after_mode = null, due_at = now()
   where run.run_id = any (planned) and run.state = 'planned'
     and not exists (select from pgflowd.awaits as one
                      where one.run_id = run.run_id and one.step_slug = '');

  update pgflowd.waits as wait set due_at = now(), rest = null
    from unnest(due) as told
   where told.has_completed is not null and wait.kind = 'runs'
     and wait.run_id = told.run_id and wait.step_slug = told.step_slug
     and wait.task_index = told.task_index
     and not exists (select from pgflowd.awaits as one
                      where one.run_id = told.run_id and one.step_slug = told.step_slug
                        and one.task_index = told.task_index);
end $$;
