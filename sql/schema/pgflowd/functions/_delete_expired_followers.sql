-- _delete_expired_followers(max_rows): deletes rows of followers that are gone.
-- Called by: follow, sweep.   Locks: the rows, skipping locked ones.
create or replace function pgflowd._delete_expired_followers(max_rows int)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  delete from pgflowd.followers as follower
   where follower.ctid = any(array(
     select expired.ctid from pgflowd.followers as expired
      where expired.expires_at < now() limit max_rows for update skip locked));
end $$;
