-- _check_map_length(elements, what): raises 54000 when that is more than the setting max_map_elements
-- allows. Up to 1,000, the least value of the setting, callers need not ask.
-- Called by: _check_map_input, _is_no_map_input.   Locks: nothing.
create or replace function pgflow._check_map_length(elements int, what text)
returns void language plpgsql stable set search_path = '', pg_temp as $$
declare
  most constant int := pgflowd.setting('max_map_elements')::int;
begin
  if elements > most then
    raise exception '% has % elements, and a map may have %', what, elements, most
      using errcode = 'program_limit_exceeded',
            hint = 'give it fewer elements, each with more work, or raise max_map_elements: '
                   '`pgflowd db set max_map_elements NUMBER`';
  end if;
end $$;
