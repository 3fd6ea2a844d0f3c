-- _is_option(is_of_step, option, value): whether this option may be tuned, and have this value.
-- Called by: set_option.   Locks: nothing.
create or replace function pgflowd._is_option(is_of_step boolean, option text, value jsonb)
returns boolean language sql immutable set search_path = '', pg_temp as $$
  select case
    when _is_option.option = 'onCrashLimit'
      then _is_option.is_of_step
           and (_is_option.value is null or _is_option.value in ('"fail"', '"quarantine"'))
    when known.least is null or not (_is_option.is_of_step or known.is_of_flow) then false
    when _is_option.value is null then _is_option.option <> 'limit'
    when jsonb_typeof(_is_option.value) <> 'number' then false
    else _is_option.value::numeric between known.least and known.most
         and _is_option.value::numeric = trunc(_is_option.value::numeric) end
    from (select null) as nothing
    left join (values ('maxAttempts', 1, 2147483647, true), ('baseDelay', 0, 2147483647, true),
                      ('timeout', 1, 2147483647, true), ('startDelay', 0, 2147483647, false),
                      ('limit', 1, 1000000, false), ('crashLimit', 1, 1000, false))
           as known (option, least, most, is_of_flow) on known.option = _is_option.option;
$$;
