-- kept_output(run_id, step_slug, task_index, attempt, max_attempts): returns what is kept of the output
-- of the newest attempts of a run, of a step, of a task, in the order of their ends. Of one whose worker
-- has died nothing is kept: `printed` is null.
-- Called by: `pgflowd runs output`.   Locks: nothing.
create or replace function pgflowd.kept_output(
  run_id uuid, step_slug text default null, task_index int default null, attempt int default null,
  max_attempts int default 20)
returns table (step_slug text, task_index int, token bigint, attempt int, outcome text,
               started_at timestamptz, ended_at timestamptz, printed text)
language sql stable set search_path = '', pg_temp as $$
  select one.step_slug, one.task_index, one.token, one.attempt, one.outcome, one.started_at,
         one.ended_at, one.printed
    from (select known.step_slug, known.task_index, known.token, known.ended_at
            from pgflowd.attempts as known
           where known.run_id = kept_output.run_id
             and (kept_output.step_slug is null or known.step_slug = kept_output.step_slug)
             and (kept_output.task_index is null or known.task_index = kept_output.task_index)
             and (kept_output.attempt is null or known.attempt = kept_output.attempt)
             and (known.printed_lines is not null or known.outcome = 'stalled')
           order by known.ended_at desc, known.token desc limit kept_output.max_attempts) as newest
    join pgflowd.attempts as one
      on one.run_id = kept_output.run_id and one.step_slug = newest.step_slug
     and one.task_index = newest.task_index and one.token = newest.token
   order by one.ended_at, one.token;
$$;
