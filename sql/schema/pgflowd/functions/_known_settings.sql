-- _known_settings(): the settings that all daemons share, each with its value while nobody has set it,
-- and what it takes: one of `words`, a whole number from `lowest` to `highest`, or else null or a duration
-- from 1h. This is the one list of them.
--   retention_completed, retention_failed  how long after its end a run that completed, or ended
--                otherwise, is deleted; null: never
--   history      `all` keeps every attempt, `failures` all but completed ones, `off` none
--                whose task has ended
--   crash_limit, on_crash_limit  for steps that do not say it: after so many stalled attempts in a row a
--                task fails for good, or is quarantined: it waits until somebody decides about it
--   max_map_elements, checkpoint_max  the latter of payloads of signals, too
--   run_in_input whether workers of other runtimes find the run's input under `run`, as from 0.8 to 0.11
--   events       `followed` sends notifications about runs that somebody follows (follow),
--                `always` about all, for those who listen by themselves
-- Called by: list_settings, set_setting, setting.   Locks: nothing.
create or replace function pgflowd._known_settings()
returns table (name text, preset jsonb, words text[], lowest int, highest int, means text)
language sql immutable set search_path = '', pg_temp as $$
  values ('retention_completed', 'null'::jsonb, null::text[], null::int, null::int,
          'keep completed runs so long'),
         ('retention_failed', 'null', null, null, null, 'keep other ended runs so long'),
         ('retention_actions', '"365d"', null, null, null, 'keep what people did so long'),
         ('history', '"all"', '{all,failures,off}', null, null, 'attempts that are kept'),
         ('crash_limit', '5', null, 1, 1000, 'stalled attempts in a row'),
         ('on_crash_limit', '"fail"', '{fail,quarantine}', null, null, 'what becomes of the task'),
         ('max_map_elements', '200000', null, 1000, 10000000, 'elements of a map at most'),
         ('checkpoint_max', '1048576', null, 1024, 16777216, 'bytes of a checkpoint at most'),
         ('run_in_input', 'false', '{true,false}', null, null, 'other runtimes get the run''s input as run'),
         ('events', '"followed"', '{followed,always}', null, null, 'runs that PostgreSQL notifies');
$$;
