-- follow(run_ids, with_output): for a minute the events of these runs are sent as notifications on
-- channel `pgflow:run:<run_id>`. With output, workers also send what their handlers print
-- (output_channel): they read the row at their next heartbeat, and the notification tells them now.
-- True if no change can be missed from now on, once this is committed: each change of a run locks
-- the run before it looks for followers. False if a run is locked just now, or does not exist yet:
-- its transaction may have looked before. Then read the run soon, and call this again. It waits for
-- nobody, adds nothing where a row lasts for long, and deletes some expired rows.
-- Security definer, so that a role which may touch no table can follow what it started.
-- Called by: clients, commands, applications.   Locks: the runs, for share, skipping locked ones.
create or replace function pgflowd.follow(run_ids uuid[], with_output boolean default false)
returns boolean language plpgsql security definer set search_path = '', pg_temp as $$
declare
  locked uuid[];
begin
  perform pgflowd._delete_expired_followers(100);
  insert into pgflowd.followers (run_id, with_output, expires_at)
  select followed.run_id, follow.with_output, clock_timestamp() + interval '1 minute'
    from unnest(follow.run_ids) as followed (run_id)
   where not exists (
     select from (select one.with_output, one.expires_at from pgflowd.followers as one
                   where one.run_id = followed.run_id offset 0) as known
      where known.with_output = follow.with_output
        and known.expires_at > clock_timestamp() + interval '45 s');
  if follow.with_output then
    perform pg_notify('pgflowd', 'follow ' || followed.run_id)
       from unnest(follow.run_ids) as followed (run_id);
  end if;
  begin
    locked := array(select run.run_id from pgflow.runs as run
                     where run.run_id = any(follow.run_ids) for share skip locked);
  exception when serialization_failure then  -- changed since the snapshot of this transaction
    return false;
  end;
  return follow.run_ids <@ locked;
end $$;
