-- sweeper_sleeps(sweeper_id, for_s): from now on this sweeper sleeps for so many seconds: whoever makes
-- something due before that notifies it. With 0 it is awake. A transaction that has looked for
-- sleepers before this one commits may still end without a notification: see due_writers. Rows of
-- sweepers that are gone are deleted.
-- Called by: the sweeper.   Locks: its row; rows of others, skipping locked ones.
create or replace function pgflowd.sweeper_sleeps(sweeper_id uuid, for_s float8)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  delete from pgflowd.sweepers as gone
   where gone.ctid = any(array(
     select one.ctid from pgflowd.sweepers as one
      where one.sleeps_until < now() - interval '5 minutes' for update skip locked));
  insert into pgflowd.sweepers (sweeper_id, sleeps_until)
  values (sweeper_sleeps.sweeper_id,
          clock_timestamp() + make_interval(secs => sweeper_sleeps.for_s))
  on conflict on constraint sweepers_pkey do update set sleeps_until = excluded.sleeps_until;
end $$;
