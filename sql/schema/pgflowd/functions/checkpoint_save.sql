-- checkpoint_save(run_id, step_slug, task_index, token, name, data, version, lease): saves this JSON as a
-- checkpoint of the task, in place of an older one of that name. Later attempts of the task read it.
-- `ok`; or `busy`, and nothing is saved, if another transaction has the task locked: ask again soon.
-- Afterwards at least half of `lease` is left. The names of what waits received, which begin with
-- `sleep `, `signal ` or `runs `, are not for this function.
-- PF001 when the token holds no live lease, PF002 for an unknown task, PF021 for more than
-- `checkpoint_max` bytes, the 10,001st name or more than 64 MiB in all, as an attempt reads all of them
-- at once; 22023 for a bad name or version, PostgreSQL's for bad
-- JSON. A call that raises has changed nothing.
-- Called by: workers.
-- Locks: the task, without waiting; its checkpoint; to renew the lease see heartbeat.
create or replace function pgflowd.checkpoint_save(
  run_id uuid, step_slug text, task_index int, token bigint, name text, data text,
  version int default 1, lease interval default '30 s')
returns text language plpgsql set search_path = '', pg_temp as $$
declare
  max_names constant int := 10000;
  max_bytes_in_all constant int := 64 * 1024 * 1024;
  max_bytes constant int := pgflowd.setting('checkpoint_max')::int;
  task_name constant text := pgflowd._task_name(
    checkpoint_save.run_id, checkpoint_save.step_slug, checkpoint_save.task_index);
  others record;
begin
  if (length(checkpoint_save.name) between 1 and 200) is not true
     or checkpoint_save.name ~ '^(sleep|signal|runs) ' then
    raise exception 'a checkpoint cannot have the name %',
      coalesce(quote_literal(left(checkpoint_save.name, 210)), 'null') using errcode = '22023',
      hint = 'use up to 200 characters, and none of "sleep ", "signal ", "runs " at the start';
  elsif (checkpoint_save.version >= 1) is not true then
    raise exception 'the version of a checkpoint is an integer of at least 1'
      using errcode = '22023';
  elsif octet_length(checkpoint_save.data) > max_bytes then
    raise exception 'checkpoint % of % has % bytes, and % are allowed', checkpoint_save.name,
      task_name, octet_length(checkpoint_save.data), max_bytes using errcode = 'PF021',
      hint = 'save a reference to the data, or raise checkpoint_max';
  elsif not pgflowd._lock_leased(checkpoint_save.run_id, checkpoint_save.step_slug,
                                 checkpoint_save.task_index, checkpoint_save.token) then
    return 'busy';
  end if;
  select count(*) as number, coalesce(sum(known.size), 0) as bytes into others
    from pgflowd.checkpoints as known
   where known.run_id = checkpoint_save.run_id and known.step_slug = checkpoint_save.step_slug
     and known.task_index = checkpoint_save.task_index and known.name <> checkpoint_save.name;
  if others.number >= max_names then
    raise exception '% has % checkpoints already', task_name, max_names using errcode = 'PF021',
      hint = 'save many values under one name, or drop those that are no longer needed';
  elsif others.bytes + octet_length(checkpoint_save.data) > max_bytes_in_all then
    raise exception 'the checkpoints of % have % bytes already, and % are allowed in all',
      task_name, others.bytes, max_bytes_in_all using errcode = 'PF021',
      hint = 'save references to the data, or drop what is no longer needed';
  end if;

  update pgflowd.checkpoints as known
     set version = checkpoint_save.version, token = checkpoint_save.token, saved_at = now(),
         data = checkpoint_save.data::jsonb
   where known.run_id = checkpoint_save.run_id and known.step_slug = checkpoint_save.step_slug
     and known.task_index = checkpoint_save.task_index and known.name = checkpoint_save.name;
  if not found then
    insert into pgflowd.checkpoints (run_id, step_slug, task_index, name, version, token, data)
    values (checkpoint_save.run_id, checkpoint_save.step_slug, checkpoint_save.task_index,
            checkpoint_save.name, checkpoint_save.version, checkpoint_save.token,
            checkpoint_save.data::jsonb);
  end if;

  perform pgflowd.heartbeat(attempt.worker_id, array[attempt.token], checkpoint_save.lease)
     from pgflowd.attempts as attempt
     join pgflow.step_tasks as task
       on task.run_id = attempt.run_id and task.step_slug = attempt.step_slug
      and task.task_index = attempt.task_index
    where attempt.token = checkpoint_save.token
      and (attempt.lease_until < clock_timestamp() + checkpoint_save.lease / 2
           or task.status = 'queued');  -- by a sweep, after the lease had lapsed
  return 'ok';
end $$;
