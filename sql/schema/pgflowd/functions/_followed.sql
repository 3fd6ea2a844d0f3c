-- _followed(run_ids): returns those of these runs whose events are to be sent as notifications: the
-- runs that somebody follows, or all with the setting events = "always". All too where the snapshot of
-- the transaction may be older than a follower's row, as in repeatable read and serializable.
-- Volatile, so that it sees what was committed before the lock of its caller. `offset 0` keeps the
-- look-up one by the runs, since most rows have not expired.
-- Called by: pgflow._followed.   Locks: nothing.
create or replace function pgflowd._followed(run_ids uuid[])
returns uuid[] language plpgsql set search_path = '', pg_temp as $$
begin
  return (
    select case when current_setting('transaction_isolation') <> 'read committed'
                     or exists (select from pgflowd.settings as kept
                                 where kept.name = 'events' and kept.value = '"always"')
                then _followed.run_ids
                else array(select follower.run_id
                             from (select one.run_id, one.expires_at from pgflowd.followers as one
                                    where one.run_id = any(_followed.run_ids) offset 0) as follower
                            where follower.expires_at > now()) end);
end $$;
