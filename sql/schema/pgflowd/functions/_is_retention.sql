-- _is_retention(value): whether a setting says how long something is kept: null, for ever, or a duration
-- of an hour at least. So "30m", meant as months, is no order to delete nearly everything.
-- Called by: set_setting.   Locks: nothing.
create or replace function pgflowd._is_retention(value jsonb)
returns boolean language sql immutable set search_path = '', pg_temp as $$
  select case
    when value = 'null' then true
    when jsonb_typeof(value) = 'string'  -- each unit once: no interval takes it twice
         and value #>> '{}' ~ '^(?=.)(\d{1,6}(\.\d{1,6})?d)?(\d{1,6}(\.\d{1,6})?h)?(\d{1,6}(\.\d{1,6})?m)?(\d{1,6}(\.\d{1,6})?s)?(\d{1,6}(\.\d{1,6})?ms)?$'
      then (value #>> '{}')::interval >= interval '1 hour'
    else false end;
$$;
