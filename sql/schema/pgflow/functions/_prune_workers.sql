-- _prune_workers(cutoff, max_pages, and_named): deletes workers whose last heartbeat is older, and
-- returns how many. Those with a heartbeat in the last 5 minutes stay, and so do persons who have a
-- task. Those that a task names stay, too, unless `and_named`: then the foreign key of the tasks
-- lets them name none.
-- For each row that goes, that key reads all tasks: an index would have a column that claims change.
-- So one pass finds the workers that tasks name, and only as many go, oldest first, as `max_pages`
-- allow, one at least. The rows are small; others go next time.
-- A worker that was frozen and claims at this moment holds the lock of its row, and so keeps it; or
-- it finds the row locked, and claims nothing.
-- Called by: prune_data_older_than, pgflowd._prune_leftovers.   Locks: the workers (skips locked), then with
-- `and_named` their tasks.
create or replace function pgflow._prune_workers(
  cutoff timestamptz, max_pages int default 100000, and_named boolean default false)
returns bigint language plpgsql set search_path = '', pg_temp as $$
declare
  silent uuid[];
  holders uuid[];
  deleted bigint;
begin
  silent := array(
    select worker.worker_id from pgflow.workers as worker
     where worker.last_heartbeat_at < least(_prune_workers.cutoff, now() - interval '5 minutes')
     order by worker.last_heartbeat_at for update skip locked);
  if silent = '{}' then
    return 0;
  end if;
  holders := array(
    select distinct task.last_worker_id
      from pgflowd._started_tasks(null) as open
      join pgflow.step_tasks as task
        on task.run_id = open.run_id and task.step_slug = open.step_slug
       and task.task_index = open.task_index
     where _prune_workers.and_named and task.last_worker_id = any (silent)
       and pgflowd._is_person(task.last_worker_id));
  delete from pgflow.workers as worker
   where worker.worker_id = any (array(
     select known.worker_id
       from unnest(silent) with ordinality as known (worker_id, ord)
      where case when _prune_workers.and_named then known.worker_id <> all (holders)
                 else known.worker_id not in (
                   select task.last_worker_id from pgflow.step_tasks as task
                    where task.last_worker_id = any (silent)) end
      order by known.ord
      limit greatest(1, _prune_workers.max_pages * current_setting('block_size')::bigint
                        / greatest(1, pg_relation_size('pgflow.step_tasks')))));
  get diagnostics deleted = row_count;
  return deleted;
end $$;
