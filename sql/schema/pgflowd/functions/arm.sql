-- arm(queue_name, owner): puts up the owner's doorbell, so that each message sent to this queue
-- notifies. Returns whether it was not up before. A transaction that has looked for doorbells before
-- this one commits may still end without a notification: see writers.
-- Called by: workers.
-- Locks: the new row; it waits for a transaction that takes the same doorbell down.
create or replace function pgflowd.arm(queue_name text, owner uuid)
returns boolean language plpgsql set search_path = '', pg_temp as $$
begin
  insert into pgflowd.doorbells (queue, owner) values (arm.queue_name, arm.owner)
    on conflict on constraint doorbells_pkey do nothing;
  return found;
end $$;
