-- list_settings(): returns each setting that all daemons share, with what it takes and means, and who has
-- changed it when; null for one that has its default.
-- Called by: setting, set_setting; `pgflowd db settings`.   Locks: nothing.
create or replace function pgflowd.list_settings()
returns table (name text, value jsonb, takes text, means text, changed_by text,
               changed_at timestamptz)
language sql stable set search_path = '', pg_temp as $$
  select known.name, pgflowd.setting(known.name), known.takes, known.means, kept.changed_by,
         kept.changed_at
    from (values
      ('retention_completed', 'null, or a duration from 1h', 'keep completed runs so long'),
      ('retention_failed', 'null, or a duration from 1h', 'keep other ended runs so long'),
      ('retention_actions', 'null, or a duration from 1h', 'keep what people did so long'),
      ('history', 'all, failures or off', 'attempts that are kept'),
      ('crash_limit', '1 to 1000', 'stalled attempts in a row'),
      ('on_crash_limit', 'fail or quarantine', 'what becomes of the task'),
      ('max_map_elements', '1000 to 10000000', 'elements of a map at most'),
      ('checkpoint_max', '1024 to 16777216', 'bytes of a checkpoint at most'),
      ('run_in_input', 'true or false', 'other runtimes get the run''s input as run'),
      ('events', 'followed or always', 'runs that PostgreSQL notifies')) as known (name, takes, means)
    left join pgflowd.settings as kept on kept.name = known.name
   order by known.name;
$$;
