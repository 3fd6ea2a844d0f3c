-- _take_needed(flow_slug, queue_name, most, hidden_s, caps): up to so many tasks of this queue that wait for
-- a worker with caps which these cover, those first that have waited for longest. They wait no longer:
-- each gets a message, hidden for so long. Returns the messages, null if there are none, and what their
-- tasks needed.
-- Waits are read again under the locks of their tasks, since a task may wait for something else by then,
-- or its run be paused; from then on a pause waits for this transaction.
-- Called by: claim, task_claim.   Locks: tasks, skipping locked ones; see _free.
create or replace function pgflowd._take_needed(
  flow_slug text, queue_name text, most int, hidden_s int, caps text[],
  out msg_ids bigint[], out needs text[])
language plpgsql set search_path = '', pg_temp set jit = off
set enable_sort = off set enable_bitmapscan = off as $$
declare
  covered text;
  locked record;
  taken record;
  freed bigint[];
begin
  for covered in
    select waiting.needs from pgflowd._waiting_needs(_take_needed.flow_slug) as waiting
     where string_to_array(waiting.needs, ',') <@ _take_needed.caps order by waiting.first_nr
  loop
    exit when cardinality(msg_ids) >= _take_needed.most;
    select array_agg(free.run_id) as run_ids, array_agg(free.step_slug) as step_slugs,
           array_agg(free.task_index) as task_indexes
      into locked
      from (select wait.run_id, wait.step_slug, wait.task_index
              from (select one.run_id, one.step_slug, one.task_index from pgflowd.waits as one
                     where one.flow_slug = _take_needed.flow_slug and one.kind = 'need'
                       and one.name = covered and not pgflowd._is_paused(one.run_id)
                     order by one.nr) as wait
             cross join lateral (
               select from pgflow.step_tasks as task
                where task.run_id = wait.run_id and task.step_slug = wait.step_slug
                  and task.task_index = wait.task_index and task.status = 'queued'
                  and task.queue_name = _take_needed.queue_name
               offset 0 for no key update skip locked) as task
             limit _take_needed.most - coalesce(cardinality(msg_ids), 0)) as free;
    continue when locked.run_ids is null;
    select array_agg(wait.run_id) as run_ids, array_agg(wait.step_slug) as step_slugs,
           array_agg(wait.task_index) as task_indexes
      into taken
      from unnest(locked.run_ids, locked.step_slugs, locked.task_indexes)
           as given (run_id, step_slug, task_index)
     cross join lateral (
       select one.* from pgflowd.waits as one
        where one.run_id = given.run_id and one.step_slug = given.step_slug
          and one.task_index = given.task_index offset 0) as wait
     where wait.kind = 'need' and wait.name = covered and not pgflowd._is_paused(given.run_id);
    freed := pgflowd._free(taken.run_ids, taken.step_slugs, taken.task_indexes,
                           _take_needed.hidden_s);
    needs := needs || array_fill(covered, array[cardinality(freed)]);
    msg_ids := msg_ids || freed;
  end loop;
  msg_ids := nullif(msg_ids, '{}');
end $$;
