-- read_originals(run_ids, step_slugs, task_indexes, asked, most_bytes): returns for tasks of undo runs,
-- by their places in the arrays, the tasks that they undo; no row for a task whose run undoes no other,
-- or has it not in its plan. `asked` has by the slugs of these steps which parts are wanted of `output`,
-- `run` (the run's input) and `item` (the element of a map); the others are null, as are those that do
-- not exist. A task that did not complete though its handler returned has its output in an attempt, the
-- last of these. With
-- `most_bytes` there is no row either where the parts, as they are stored, are larger. The plan of a run
-- and the elements of a map may be large, so each is read once.
-- Called by: read_original; workers.   Locks: nothing.
create or replace function pgflowd.read_originals(
  run_ids uuid[], step_slugs text[], task_indexes int[], asked jsonb, most_bytes int default null)
returns table (ord int, undo jsonb, output jsonb, run_input jsonb, item jsonb)
language sql stable set search_path = '', pg_temp as $$
  with given as materialized (
    select one.ord::int, one.run_id, substr(one.step_slug, length('undo_') + 1) as step, one.task_index,
           read_originals.asked -> one.step_slug as parts
      from unnest(read_originals.run_ids, read_originals.step_slugs, read_originals.task_indexes)
             with ordinality as one (run_id, step_slug, task_index, ord)),
  run as materialized (
    select own.run_id, original.run_id as original, original.flow_slug, original.input, one.*
      from (select distinct each.run_id from given as each) as asking
     cross join lateral (
       select known.run_id, known.undo_of from pgflowd.runs as known
        where known.run_id = asking.run_id and known.undo_of is not null offset 0) as own
     cross join lateral (
       select known.input from pgflow.runs as known where known.run_id = own.run_id offset 0) as undoing
     cross join lateral (
       select known.run_id, known.flow_slug, known.input from pgflow.runs as known
        where known.run_id = own.undo_of offset 0) as original
     cross join lateral jsonb_to_record(undoing.input) as one (plan jsonb, cause jsonb, generation jsonb)),
  map as materialized (
    select run.run_id, asking.step, coalesce(made.output, run.input) as elements
      from (select distinct each.run_id, each.step from given as each where each.parts ? 'item') as asking
      join run on run.run_id = asking.run_id
      left join lateral (
        select state.output from pgflow.deps as dep
          join pgflow.step_states as state
            on state.run_id = run.original and state.step_slug = dep.dep_slug
         where dep.flow_slug = run.flow_slug and dep.step_slug = asking.step) as made on true)
  select given.ord,
         jsonb_build_object('run_id', run.original, 'task_index', task.task_index, 'cause', run.cause,
                            'generation', run.generation),
         part.output, part.run_input, part.item
    from given
    join run on run.run_id = given.run_id
   cross join lateral (
     select one.task_index, one.status, one.output from pgflow.step_tasks as one
      where one.run_id = run.original and one.step_slug = given.step
        and one.task_index = (run.plan #>> array[given.step, given.task_index::text])::int offset 0) as task
    left join map on map.run_id = given.run_id and map.step = given.step
   cross join lateral (
     select case when not given.parts ? 'output' then null
                 when task.status = 'completed' then coalesce(task.output, 'null')
                 else (select attempt.output from pgflowd.attempts as attempt
                        where attempt.run_id = run.original and attempt.step_slug = given.step
                          and attempt.task_index = task.task_index and attempt.output is not null
                        order by attempt.token desc limit 1) end as output,
            case when given.parts ? 'run' then run.input end as run_input,
            case when given.parts ? 'item'
                   then coalesce(map.elements -> task.task_index, 'null') end as item) as part
   where read_originals.most_bytes is null
      or coalesce(pg_column_size(part.output), 0) + coalesce(pg_column_size(part.run_input), 0)
         + coalesce(pg_column_size(part.item), 0) <= read_originals.most_bytes;
$$;
