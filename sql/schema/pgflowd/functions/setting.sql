-- setting(name): returns the setting of this name that all daemons share, or its default.
--   retention_completed, retention_failed  how long after its end a run that completed, or ended
--                otherwise, is deleted; null, the default: never
--   retention_actions  how long is kept what people did
--   history      `all` keeps every attempt, `failures` all but completed ones, `off` none
--                whose task has ended
--   crash_limit  stalled attempts in a row after which a task fails for good
--   on_crash_limit  `fail` it then, or `quarantine`: it waits until somebody decides about it
--   max_map_elements  elements that a map may have
--   checkpoint_max  bytes that a checkpoint, or the payload of a signal, may have
--   run_in_input whether workers of other runtimes find the run's input under `run`, as from 0.8 to 0.11
--   events       `followed` sends notifications about runs that somebody follows (follow),
--                `always` about all, for those who listen by themselves
-- PF020 for an unknown name.
-- Called by: checkpoint_save, _crash_limit, _delete_attempts, list_settings, prune_expired,
-- set_setting, _signal, pgflow._check_map_length, pgflow._run_in_input; commands.   Locks: nothing.
create or replace function pgflowd.setting(name text)
returns jsonb language plpgsql stable set search_path = '', pg_temp as $$
declare
  value jsonb := (select kept.value from pgflowd.settings as kept
                   where kept.name = setting.name);
begin
  if value is not null then
    return value;
  end if;
  case setting.name
    when 'history' then return '"all"';
    when 'crash_limit' then return '5';
    when 'on_crash_limit' then return '"fail"';
    when 'max_map_elements' then return '200000';
    when 'checkpoint_max' then return '1048576';
    when 'run_in_input' then return 'false';
    when 'events' then return '"followed"';
    when 'retention_completed' then return 'null';
    when 'retention_failed' then return 'null';
    when 'retention_actions' then return '"365d"';
    else raise exception 'there is no setting %', quote_literal(setting.name)
      using errcode = 'PF020', hint = 'settings are ' || (
        select string_agg(known.name, ', ') from pgflowd.list_settings() as known);
  end case;
end $$;
