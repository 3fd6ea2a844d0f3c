-- read_original(run_id, step_slug, task_index, parts): returns the task that this one of an undo run undoes; no
-- row if the plan of the run has nothing for it. Of `output`, `run` (the run's input) and `item` (the element of
-- a map) only the parts that are asked for, and null where there is none. A task that completed when its
-- run had ended has its output in an attempt. PF002 for a run that undoes no other.
-- Called by: workers.   Locks: nothing.
create or replace function pgflowd.read_original(
  run_id uuid, step_slug text, task_index int, parts text[])
returns table (undo jsonb, output jsonb, run_input jsonb, item jsonb)
language plpgsql stable set search_path = '' as $$
#variable_conflict use_column
declare
  step constant text := substr(read_original.step_slug, length('undo_') + 1);
  given record;
  original constant uuid := (select run.undo_of from pgflowd.runs as run
                              where run.run_id = read_original.run_id);
  index int;
begin
  select (one.plan #>> array[step, read_original.task_index::text])::int as index, one.cause,
         one.generation  -- the input may be large: it is read once
    into given
    from pgflow.runs as run
   cross join lateral jsonb_to_record(run.input) as one (plan jsonb, cause jsonb, generation jsonb)
   where run.run_id = read_original.run_id;
  index := given.index;
  if original is null then
    raise exception 'run % undoes no other', read_original.run_id using errcode = 'PF002',
      hint = '`pgflowd runs undo RUN` undoes a run';
  elsif index is null then
    return;
  end if;
  return query
    select jsonb_build_object('run_id', original, 'task_index', index, 'cause', given.cause,
                              'generation', given.generation),
           case when 'output' = any (parts) then
             case when task.status = 'completed' then coalesce(task.output, 'null')
                  else (select attempt.output from pgflowd.attempts as attempt
                         where attempt.run_id = original and attempt.step_slug = step
                           and attempt.task_index = index and attempt.outcome = 'late'
                           and attempt.output is not null
                         order by attempt.token desc limit 1) end end,
           case when 'run' = any (parts) then run.input end,
           case when 'item' = any (parts) then coalesce(
             coalesce((select state.output
                         from pgflow.deps as dep
                         join pgflow.step_states as state
                           on state.run_id = original and state.step_slug = dep.dep_slug
                        where dep.flow_slug = run.flow_slug and dep.step_slug = step),
                      run.input) -> index, 'null') end
      from pgflow.step_tasks as task
      join pgflow.runs as run on run.run_id = task.run_id
     where task.run_id = original and task.step_slug = step and task.task_index = index;
end $$;
