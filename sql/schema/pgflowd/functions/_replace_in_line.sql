-- _replace_in_line(key, holder): if a run in line for a singleton key replaces others, ends those before
-- it, at most a thousand at once, and cancels the one that has the key. False if some are left, as they
-- are locked or too many.
-- Called by: _process_line.   Locks: runs and their rows in pgflowd.runs, if they are free; see cancel.
create or replace function pgflowd._replace_in_line(key text, holder uuid)
returns boolean language plpgsql set search_path = '', pg_temp as $$
declare
  replacing pgflowd.runs;
  reason text;
begin
  select run.* into replacing from pgflowd.runs as run
   where run.singleton_key = _replace_in_line.key and run.state = 'planned' and run.replaces
     and run.after_mode is null and coalesce(run.start_at <= now(), true)
   order by run.created_at desc, run.run_id desc limit 1;
  if not found then
    return true;
  end if;
  reason := 'replaced by run ' || replacing.run_id::text;
  with replaced as (
    select run.run_id from pgflowd.runs as run
     where run.singleton_key = _replace_in_line.key and run.state = 'planned'
       and run.after_mode is null and coalesce(run.start_at <= now(), true)
       and (run.created_at, run.run_id) < (replacing.created_at, replacing.run_id)
     order by run.created_at, run.run_id limit 1000 for update skip locked
  )
  update pgflowd.runs as run
     set state = 'ended', due_at = now(), cancelled_at = now(), cancelled_by = 'pgflowd',
         cancel_reason = reason
    from replaced where run.run_id = replaced.run_id;

  if exists (select from pgflow.runs as run
              where run.run_id = _replace_in_line.holder and run.status = 'started') then
    perform from pgflow.runs as run
      where run.run_id = _replace_in_line.holder and run.status = 'started'
        for no key update skip locked;
    if not found then
      return false;
    end if;
    perform pgflowd._cancel(_replace_in_line.holder, reason, 'pgflowd');
  end if;
  return not exists (
    select from pgflowd.runs as run
     where run.singleton_key = _replace_in_line.key and run.state = 'planned'
       and run.after_mode is null and coalesce(run.start_at <= now(), true)
       and (run.created_at, run.run_id) < (replacing.created_at, replacing.run_id));
end $$;
