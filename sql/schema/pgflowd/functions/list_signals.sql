-- list_signals(run_id, only_open, max_rows): returns the newest signals of a run, or (null) of all runs:
-- who sent what, and which task got it. `only_open`: those that nobody got. Without a run it looks at the
-- newest 100,000.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.list_signals(
  run_id uuid default null, only_open boolean default false, max_rows int default 20)
returns table (signal_id bigint, run_id uuid, name text, payload jsonb, dedup text, sent_by text,
               sent_at timestamptz, step_slug text, task_index int, consumed_at timestamptz,
               session_role text)
language sql stable set search_path = '', pg_temp as $$
  select found.*
    from ((select signal.signal_id, signal.run_id, signal.name, signal.payload, signal.dedup,
                  signal.sent_by, signal.sent_at, signal.step_slug, signal.task_index,
                  signal.consumed_at, signal.session_role
             from pgflowd.signals as signal
            where list_signals.run_id is null
            order by signal.signal_id desc limit 100000)
           union all
          (select signal.signal_id, signal.run_id, signal.name, signal.payload, signal.dedup,
                  signal.sent_by, signal.sent_at, signal.step_slug, signal.task_index,
                  signal.consumed_at, signal.session_role
             from pgflowd.signals as signal
            where signal.run_id = list_signals.run_id)) as found
   where not list_signals.only_open or found.consumed_at is null
   order by found.signal_id desc
   limit list_signals.max_rows;
$$;
