-- _joined_needs(needs): returns a JSON list of needs as waits have them: each once, sorted, with commas
-- between. Null unless it has 1 to 32 texts of 1 to 64 printable ASCII characters, without blanks and
-- commas; so they fit into an index.
-- Called by: _followed_options, _parse_reports, _set_step_options, _suspend, task_release.   Locks: nothing.
create or replace function pgflowd._joined_needs(needs jsonb)
returns text language sql immutable set search_path = '', pg_temp as $$
  select case when count(*) between 1 and 32
                   and bool_and(jsonb_typeof(need.value) = 'string'
                                and need.value #>> '{}' ~ '^[!-+\x2d-~]{1,64}$')
              then string_agg(distinct (need.value #>> '{}') collate "C", ','
                              order by (need.value #>> '{}') collate "C") end
    from jsonb_array_elements(
           case when jsonb_typeof(_joined_needs.needs) = 'array' then _joined_needs.needs
                else '[]' end) as need (value);
$$;
