-- _told_status(status): the status document of a daemon as far as it may travel, since a worker's role can
-- write any: its first fifty problems that are objects, each text of them cut to a thousand characters, and
-- the rest of it, unless that is more than a megabyte: then a problem says so instead.
-- Called by: daemons.   Locks: nothing.
create or replace function pgflowd._told_status(status jsonb)
returns jsonb language sql immutable set search_path = '', pg_temp as $$
  with rest as materialized (
    select told.rest, length(told.rest::text) as size
      from (select _told_status.status - 'problems' as rest
             where jsonb_typeof(_told_status.status) = 'object') as told
  ), first as materialized (
    select each.nr, jsonb_build_object(
             'code', left(each.one ->> 'code', 40), 'flow', left(each.one ->> 'flow', 200),
             'text', left(each.one ->> 'text', 1000), 'next', left(each.one ->> 'next', 1000)) as problem
      from jsonb_array_elements(jsonb_path_query_array(_told_status.status, '$.problems[0 to 49]'))
           with ordinality as each (one, nr)
     where jsonb_typeof(each.one) = 'object'
  ), problems as (
    select coalesce(jsonb_agg(first.problem order by first.nr), '[]') as listed from first
  )
  select case
    when rest.size > 1000000 then jsonb_build_object('problems', jsonb_build_array(
      jsonb_build_object('text', 'its status has ' || rest.size || ' characters, and is not shown'))
      || problems.listed)
    else rest.rest || jsonb_build_object('problems', problems.listed) end
    from rest cross join problems;
$$;
