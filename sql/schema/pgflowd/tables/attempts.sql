-- attempts: one row per claim of a task. Open (ended_at is null) it is a lease, the right to
-- report the task; closed it is history.
-- An attempt is written only by a transaction that holds the lock of its task row. No index keeps a
-- second open row out; this rule does. No index mentions a column that a report changes, so that
-- each report is one HOT update; fillfactor leaves room for it, even where a whole page is at
-- work at once. The token never changes, and heartbeats find attempts by its index.
-- `progress` is what the handler told last, `printed` what is kept of its output: lines of seconds since
-- the attempt began, a source (stdout, stderr, or the level of a log record), and a text. Both decide
-- nothing. No list, sweep or status reads `printed`, of which `printed_lines` is the number of lines.
create table if not exists pgflowd.attempts (
  run_id uuid not null,
  step_slug text not null,
  task_index int not null,
  token bigint generated always as identity,
  flow_slug text not null,
  worker_id uuid not null,
  msg_id bigint,
  attempt int not null,
  started_at timestamptz not null default now(),
  lease_until timestamptz not null,
  ended_at timestamptz,
  outcome text,
  error_type text,
  error_message text,
  traceback text,
  exit_code int,
  exit_signal int,
  cpu_s real,
  peak_kb bigint,
  output jsonb,
  limit_key text,
  progress jsonb,
  printed text,
  printed_lines int,
  constraint attempts_pkey primary key (run_id, step_slug, task_index, token),
  constraint attempts_task_fkey foreign key (run_id, step_slug, task_index)
    references pgflow.step_tasks (run_id, step_slug, task_index) on delete cascade,
  constraint outcome_is_known check (outcome in (
    'completed', 'failed', 'timed_out', 'crashed', 'released', 'suspended', 'stalled', 'late',
    'lost')),
  constraint ended_with_an_outcome check ((ended_at is null) = (outcome is null))
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05,
        autovacuum_vacuum_insert_scale_factor = 0.1);
create unique index if not exists attempts_token_key on pgflowd.attempts (token);
