-- _person(queue_name, actor): returns the id by which this person works on the tasks of a queue, and
-- sees to it that pgflow.workers has its row. The row bears the person's name, and counts as that of a
-- worker which has stopped, so that nobody takes it for a process. Without an actor the person is the
-- session's user.
-- Called by: _hold_task, task_claim.
-- Locks: the row, against its deletion; it waits for nobody but who deletes or inserts it just now.
create or replace function pgflowd._person(queue_name text, actor text)
returns uuid language plpgsql set search_path = '', pg_temp as $$
declare
  person constant text := left(coalesce(nullif(_person.actor, ''), session_user), 200);
  id constant uuid := pgflowd._person_id(_person.queue_name, person);
  is_new boolean;
begin
  perform from pgflow.workers as worker where worker.worker_id = id for key share;
  if found then
    return id;
  end if;
  insert into pgflow.workers as worker (worker_id, queue_name, function_name)
  values (id, _person.queue_name, person)
  on conflict (worker_id) do nothing
  returning true into is_new;
  if is_new then
    update pgflow.workers as worker set stopped_at = clock_timestamp() where worker.worker_id = id;
  end if;
  return id;
end $$;
