-- _begin_first(key): lets the first in line for a singleton key begin, and have the key. False if it is
-- locked, or has ended already. One that cannot be started is tried again in a minute, and a notice says
-- so (PF013); the others wait behind it.
-- Called by: _process_line.   Locks: its flow and its row, if they are free; what a start locks.
create or replace function pgflowd._begin_first(key text)
returns boolean language plpgsql set search_path = '', pg_temp as $$
declare
  first pgflowd.runs;
begin
  select run.* into first from pgflowd.runs as run
   where run.singleton_key = _begin_first.key and run.state = 'planned'
     and run.after_mode is null and coalesce(run.start_at <= now(), true)
   order by run.created_at, run.run_id limit 1;
  if not found then
    return true;
  end if;
  perform from pgflow.flows as flow where flow.flow_slug = first.flow_slug for share skip locked;
  if not found then
    return false;
  end if;
  select run.* into first from pgflowd.runs as run
   where run.run_id = first.run_id and run.state = 'planned'
     and run.after_mode is null and coalesce(run.start_at <= now(), true) and coalesce(run.expires_at > now(), true)
     for update skip locked;
  if not found then
    return false;
  end if;
  begin
    if not exists (select from pgflow.runs as run where run.run_id = first.run_id) then
      perform from pgflow.start_flows(first.flow_slug, array[first.input], array[first.run_id]);
    end if;
    update pgflowd.runs as run
       set state = 'started', input = null, holds_key = true, due_at = run.expires_at
     where run.run_id = first.run_id;
    perform pgflowd._watch_runs(array[first.run_id]);
  exception when others then
    update pgflowd.runs as run set due_at = now() + interval '1 minute'
     where run.run_id = first.run_id;
    raise notice 'run % cannot be started: %', first.run_id, sqlerrm
      using errcode = 'PF013', detail = jsonb_build_object('run', first.run_id, 'error', sqlerrm);
    return true;
  end;
  return exists (select from pgflow.runs as run
                  where run.run_id = first.run_id and run.status = 'started');
end $$;
