-- _process_line(key): lets the first in line for a singleton key begin when nobody has it any more. In
-- line are the planned runs whose time has come, and that wait for no others, in the order of their
-- starts. False: look again soon, since something is locked, or handlers of the run that had the key are
-- still at work. A person who has a task of it holds up nobody. A run that is being undone has not ended
-- yet: it is due when it has. A run rests in line, not due, only behind one whose row is locked here:
-- who deletes that one comes afterwards, and makes the next one due (_forget_runs).
-- Called by: _process_runs, tick.
-- Locks: the caller has the key; runs, flows, rows in pgflowd.runs, if they are free.
create or replace function pgflowd._process_line(key text)
returns boolean language plpgsql set search_path = '', pg_temp as $$
declare
  holder uuid;
  status text;
begin
  select run.run_id into holder from pgflowd.runs as run
   where run.singleton_key = _process_line.key and run.holds_key for key share skip locked;
  if not found and exists (select from pgflowd.runs as run
                            where run.singleton_key = _process_line.key and run.holds_key) then
    return false;
  elsif not pgflowd._replace_in_line(_process_line.key, holder) then
    return false;
  elsif holder is null then
    return pgflowd._begin_first(_process_line.key);
  end if;

  select run.status into status from pgflow.runs as run where run.run_id = holder;
  if status = 'started' or pgflowd._is_being_undone(holder) then
    return true;
  elsif status = 'failed' and exists (
          select from pgflowd.attempts as attempt
           where attempt.run_id = holder and attempt.ended_at is null
             and attempt.lease_until > now() and not pgflowd._is_person(attempt.worker_id)) then
    return false;
  end if;
  update pgflowd.runs as run set holds_key = false where run.run_id = holder;
  return pgflowd._begin_first(_process_line.key);
end $$;
