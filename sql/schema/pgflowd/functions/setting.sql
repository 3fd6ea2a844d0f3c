-- setting(name): returns the setting of this name that all daemons share, or its default. _known_settings
-- lists them. PF020 for an unknown name.
-- Called by: checkpoint_save, _crash_limit, _delete_attempts, export_attempts, prune_expired, set_setting,
-- _signal, pgflow._check_map_length, pgflow._run_in_input; commands.   Locks: nothing.
create or replace function pgflowd.setting(name text)
returns jsonb language plpgsql stable set search_path = '', pg_temp as $$
declare
  value jsonb := (select kept.value from pgflowd.settings as kept
                   where kept.name = setting.name);
begin
  if value is null then
    select known.preset into value from pgflowd._known_settings() as known where known.name = setting.name;
    if not found then
      raise exception 'there is no setting %', quote_literal(setting.name)
        using errcode = 'PF020', hint = 'settings are ' || (
          select string_agg(known.name, ', ') from pgflowd.list_settings() as known);
    end if;
  end if;
  return value;
end $$;
