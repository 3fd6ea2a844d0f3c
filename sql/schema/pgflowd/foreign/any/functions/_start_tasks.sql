-- _start_tasks(flow_slug, queue_name, only_step, msg_ids, worker_id): lets the core start the
-- queued tasks of these messages, and returns them with the number of the attempt.
-- Upstream's claim would wait for a locked task, and would fail the batch for one that was queued
-- after this transaction began; so it gets only free and older tasks.
-- Upstream's forms of `start_tasks`: four or five arguments since 0.17, three before; before
-- 0.12 the record has no `flow_input`, and the run's input is a key of the input.
-- PF030 when there is none of these.
-- Called by: _start_attempts.   Locks: tasks, skipping locked ones.
create or replace function pgflowd._start_tasks(
  flow_slug text, queue_name text, only_step text, msg_ids bigint[], worker_id uuid)
returns table (run_id uuid, step_slug text, task_index int, msg_id bigint,
               input jsonb, flow_input jsonb, attempt int)
language plpgsql set search_path = '', pg_temp
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  free bigint[];
  attempts int[];
begin
  select array_agg(locked.message_id), array_agg(locked.attempts_count + 1)
    into free, attempts
    from (select task.message_id, task.attempts_count
            from pgflow.step_tasks as task
           where task.flow_slug = _start_tasks.flow_slug
             and task.message_id = any(_start_tasks.msg_ids)
             and task.status = 'queued' and task.queued_at <= now()
             and (_start_tasks.only_step is null or task.step_slug = _start_tasks.only_step)
             for no key update skip locked) as locked;
  if free is null then
    return;
  elsif to_regprocedure('pgflow.start_tasks(text, bigint[], uuid)') is null then
    if to_regprocedure('pgflow.start_tasks(text, bigint[], uuid, text, text)') is null then
      raise exception 'schema pgflow has no start_tasks that we know'
        using errcode = 'PF030', hint = 'run `pgflowd db migrate`, or install the newer pgflowd';
    end if;
    return query
      select begun.run_id, begun.step_slug, begun.task_index, begun.msg_id,
             begun.input, begun.flow_input, known.attempt
        from pgflow.start_tasks(_start_tasks.flow_slug, free, _start_tasks.worker_id,
                                _start_tasks.queue_name, _start_tasks.only_step) as begun
        join unnest(free, attempts) as known (msg_id, attempt) using (msg_id);
  elsif exists (select from pg_attribute as attribute
                 where attribute.attrelid = 'pgflow.step_task_record'::regclass
                   and attribute.attname = 'flow_input') then
    return query
      select begun.run_id, begun.step_slug, begun.task_index, begun.msg_id,
             begun.input, begun.flow_input, known.attempt
        from pgflow.start_tasks(_start_tasks.flow_slug, free, _start_tasks.worker_id) as begun
        join unnest(free, attempts) as known (msg_id, attempt) using (msg_id);
  else
    return query
      select begun.run_id, begun.step_slug, begun.task_index, begun.msg_id,
             case when step.step_type = 'single' then begun.input - 'run' else begun.input end,
             case when step.step_type = 'single' and step.deps_count = 0
                  then begun.input -> 'run' end,
             known.attempt
        from pgflow.start_tasks(_start_tasks.flow_slug, free, _start_tasks.worker_id) as begun
        join unnest(free, attempts) as known (msg_id, attempt) using (msg_id)
        join pgflow.steps as step
          on step.flow_slug = begun.flow_slug and step.step_slug = begun.step_slug;
  end if;
end $$;
