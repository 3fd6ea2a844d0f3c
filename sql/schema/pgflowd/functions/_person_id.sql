-- _person_id(queue_name, actor): the id by which this person works on the tasks of a queue: always the
-- same, made of a hash of both.
-- Called by: _is_person, _person, task_extend, _task_events.   Locks: nothing.
create or replace function pgflowd._person_id(queue_name text, actor text)
returns uuid language sql immutable strict set search_path = '', pg_temp as $$
  select encode(substr(sha256(convert_to(
           lower(_person_id.queue_name collate "C") || ' ' || _person_id.actor, 'UTF8')), 1, 16),
         'hex')::uuid;
$$;
