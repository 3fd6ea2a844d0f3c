-- _is_option(is_of_step, option, value): whether this option may be tuned, and have this value.
-- Called by: set_option.   Locks: nothing.
create or replace function pgflowd._is_option(is_of_step boolean, option text, value jsonb)
returns boolean language sql immutable set search_path = '', pg_temp as $$
  select coalesce((
    select case
             when known.is_mode or not (_is_option.is_of_step or known.is_of_flow) then false
             when _is_option.value is null then known.name <> 'limit'
             when known.words is not null
               then jsonb_typeof(_is_option.value) = 'string'
                    and _is_option.value #>> '{}' = any (known.words)
             when jsonb_typeof(_is_option.value) <> 'number' then false
             else _is_option.value::numeric between known.lowest and known.highest
                  and _is_option.value::numeric = trunc(_is_option.value::numeric) end
      from pgflowd._options() as known where known.name = _is_option.option), false);
$$;
