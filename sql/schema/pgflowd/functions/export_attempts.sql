-- export_attempts(max_attempts): returns attempts that have ended since the last call, at most so many
-- new ones, each with what its span needs (_trace_of), and whether its report has ended its run; and
-- moves the cursor past them. Who exports sends the spans and commits, or rolls back, and reads them
-- again. Nothing while another daemon does so. Attempts are read in the order of their tokens, by
-- the index that claims write anyway. One that is open stays in the cursor, so a report that is not
-- committed hides nothing. Nor does a claim: the cursor goes to a token only when all transactions
-- have ended that had written attempts when it was the newest (_writers). After a day without a call it
-- begins anew. What history `failures` does not keep is deleted here.
-- Called by: the exporter.
-- Locks: the row of traces, without waiting; with history `failures` tasks that have ended, without
-- waiting.
create or replace function pgflowd.export_attempts(max_attempts int)
returns table (run_id uuid, step_slug text, task_index int, token bigint, flow_slug text, attempt int,
               began_us bigint, ended_us bigint, outcome text, error_type text, error_message text,
               exit_code int, exit_signal int, cpu_s real, peak_kb bigint, trace jsonb, ends_run boolean)
language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  known pgflowd.traces;
  moved pgflowd.traces;
  tokens bigint[];
  closed bigint[];
begin
  if not exists (select from pgflowd.traces) then
    insert into pgflowd.traces (token, up_to, seen_at) values (0, 0, '-infinity') on conflict do nothing;
  end if;
  select cursor.* into known from pgflowd.traces as cursor for no key update skip locked;
  if not found then
    return;
  end if;
  moved := known;
  if moved.seen_at < now() - interval '1 minute' then
    moved.seen_at := now();
  end if;
  if known.seen_at < now() - interval '1 day' then
    moved.open := '{}';
    moved.up_to := coalesce((select max(attempt.token) from pgflowd.attempts as attempt), 0);
    moved.token := moved.up_to;
    moved.writers := '{}';
    delete from pgflowd.ended_runs;
  end if;

  if moved.token >= moved.up_to then
    moved.up_to := greatest(moved.token, (select max(attempt.token) from pgflowd.attempts as attempt));
    moved.writers := case when moved.up_to > moved.token
                       then pgflowd._writers(array['pgflowd.attempts'::regclass::oid], null) else '{}' end;
  elsif moved.writers <> '{}' then
    moved.writers := pgflowd._writers(array['pgflowd.attempts'::regclass::oid], moved.writers);
  end if;
  tokens := moved.open;
  if moved.writers = '{}' then
    tokens := tokens || array(
      select attempt.token from pgflowd.attempts as attempt
       where attempt.token > moved.token and attempt.token <= moved.up_to
       order by attempt.token limit greatest(export_attempts.max_attempts, 1));
    moved.token := case when cardinality(tokens) - cardinality(moved.open) < greatest(export_attempts.max_attempts, 1)
                     then moved.up_to else tokens[cardinality(tokens)] end;
  end if;
  moved.open := array(
    select attempt.token from unnest(tokens) as one (token)
      join lateral (select found.token, found.ended_at from pgflowd.attempts as found
                     where found.token = one.token offset 0) as attempt on attempt.ended_at is null);
  closed := array(select unnest(tokens) except all select unnest(moved.open));
  if moved is distinct from known then
    update pgflowd.traces as cursor
       set token = moved.token, open = moved.open, up_to = moved.up_to, writers = moved.writers,
           seen_at = moved.seen_at;
  end if;

  return query
    select attempt.run_id, attempt.step_slug, attempt.task_index, attempt.token, attempt.flow_slug,
           attempt.attempt, (extract(epoch from attempt.started_at) * 1000000)::bigint,
           (extract(epoch from attempt.ended_at) * 1000000)::bigint, attempt.outcome, attempt.error_type,
           left(attempt.error_message, 4000), attempt.exit_code, attempt.exit_signal, attempt.cpu_s,
           attempt.peak_kb,
           pgflowd._trace_of(attempt.run_id, attempt.step_slug, attempt.task_index, attempt.token),
           attempt.outcome not in ('late', 'lost') and run.run_id is not null
      from unnest(closed) as one (token)
     cross join lateral (select found.* from pgflowd.attempts as found
                          where found.token = one.token offset 0) as attempt
      left join lateral (select found.run_id from pgflow.runs as found
                          where found.run_id = attempt.run_id and found.status <> 'started'
                            and case when found.status = 'completed' then found.completed_at
                                     else found.failed_at end <= attempt.ended_at offset 0) as run on true
     where attempt.ended_at is not null;
  if closed <> '{}' and pgflowd.setting('history') = '"failures"' then
    with completed as materialized (
      select attempt.run_id, attempt.step_slug, attempt.task_index, attempt.token
        from unnest(closed) as one (token)
       cross join lateral (select found.* from pgflowd.attempts as found
                            where found.token = one.token offset 0) as attempt
       where attempt.outcome = 'completed'
    ), held as materialized (
      select task.run_id, task.step_slug, task.task_index
        from pgflow.step_tasks as task
       where (task.run_id, task.step_slug, task.task_index) in (
               select completed.run_id, completed.step_slug, completed.task_index from completed)
       order by task.run_id, task.step_slug, task.task_index for no key update skip locked
    )
    delete from pgflowd.attempts as attempt using completed, held
     where attempt.run_id = completed.run_id and attempt.step_slug = completed.step_slug
       and attempt.task_index = completed.task_index and attempt.token = completed.token
       and held.run_id = completed.run_id and held.step_slug = completed.step_slug
       and held.task_index = completed.task_index;
  end if;
end $$;
