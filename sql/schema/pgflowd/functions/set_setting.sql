-- set_setting(name, value, actor): changes a setting that all daemons share; returns the old value. A
-- duration is a text, as "30d" or "1h30m", of an hour at least, or null, for ever: so "30m", meant as months,
-- is no order to delete nearly everything.
-- PF020 for an unknown name, or a value that the name does not take.
-- Called by: `pgflowd db set`; operators.   Locks: the setting's row.
create or replace function pgflowd.set_setting(name text, value jsonb, actor text)
returns jsonb language plpgsql set search_path = '', pg_temp as $$
declare
  old jsonb := pgflowd.setting(set_setting.name);
  fits boolean := (
    select case when known.words is not null
                then jsonb_typeof(set_setting.value) = jsonb_typeof(known.preset)
                     and set_setting.value #>> '{}' = any (known.words)
                when known.lowest is not null
                then jsonb_typeof(set_setting.value) = 'number'
                     and set_setting.value::numeric between known.lowest and known.highest
                     and set_setting.value::numeric % 1 = 0
                when set_setting.value = 'null' then true
                when jsonb_typeof(set_setting.value) = 'string'  -- each unit once: no interval takes it twice
                     and set_setting.value #>> '{}' ~ '^(?=.)(\d{1,6}(\.\d{1,6})?d)?(\d{1,6}(\.\d{1,6})?h)?(\d{1,6}(\.\d{1,6})?m)?(\d{1,6}(\.\d{1,6})?s)?(\d{1,6}(\.\d{1,6})?ms)?$'
                then (set_setting.value #>> '{}')::interval >= interval '1 hour'
                else false end
      from pgflowd._known_settings() as known where known.name = set_setting.name);
begin
  if fits is not true then
    raise exception 'setting % does not take %', set_setting.name,
      coalesce(set_setting.value::text, 'null')
      using errcode = 'PF020', hint = 'it takes ' || (
        select known.takes from pgflowd.list_settings() as known where known.name = set_setting.name);
  end if;
  insert into pgflowd.settings as kept (name, value, changed_by)
  values (set_setting.name, set_setting.value, set_setting.actor)
  on conflict on constraint settings_pkey do update
     set value = excluded.value, changed_by = excluded.changed_by, changed_at = now();
  if set_setting.value <> old then
    perform pgflowd._record_action(
      'set_setting', set_setting.actor, data => jsonb_build_object(
        'name', set_setting.name, 'value', set_setting.value, 'before', old));
  end if;
  return old;
end $$;
