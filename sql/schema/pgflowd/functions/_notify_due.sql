-- _notify_due(at): tells sweepers that something is due at this moment, if one of them will sleep
-- longer. The caller's transaction has written into waits or signals before it asks, so that a sweeper
-- which lies down meanwhile sees it by its locks (due_writers). A transaction that reads by an old
-- snapshot may not see that a sweeper sleeps, so it always notifies. It is volatile, since each question
-- needs a snapshot of its own.
-- Called by: _await_runs, _cancel_planned, _forget_runs, _free_slots, _mark_ended, _mark_parent,
-- reschedule, _resume, resume_schedule, _set_step_options, _signal, _start, _suspend, _want_undo,
-- _watch_runs, _write_schedule.
-- Locks: nothing.
create or replace function pgflowd._notify_due(at timestamptz)
returns void language plpgsql volatile set search_path = '', pg_temp as $$
begin
  if current_setting('transaction_isolation') <> 'read committed'
     or exists (select from pgflowd.sweepers as sweeper
                 where sweeper.sleeps_until > _notify_due.at) then
    perform pg_notify('pgflowd_due', '');
  end if;
end $$;
