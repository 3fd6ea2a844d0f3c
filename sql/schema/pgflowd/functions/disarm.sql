-- disarm(queue_name, owner): takes the owner's doorbell down: whoever sends to this queue need not
-- notify because of it, since the owner looks by itself.
-- Called by: workers.   Locks: the row.
create or replace function pgflowd.disarm(queue_name text, owner uuid)
returns void language sql set search_path = '', pg_temp as $$
  delete from pgflowd.doorbells as bell
   where bell.queue = disarm.queue_name and bell.owner = disarm.owner;
$$;
