-- _families(run_ids): of these runs each that belongs to no other one which is still there, as `first`, with
-- itself and all runs below it. A run belongs to the one that has started it, or that it undoes.
-- Called by: delete_run, _first_families, _prune, pgflow.prune_data_older_than.   Locks: nothing.
create or replace function pgflowd._families(run_ids uuid[])
returns table (first uuid, run_id uuid) language sql stable set search_path = '', pg_temp as $$
  with recursive family as (
    select given.run_id as first, given.run_id
      from unnest(_families.run_ids) as given (run_id)
      left join lateral (
       select coalesce(one.undo_of, one.parent_run_id) as run_id from pgflowd.runs as one
        where one.run_id = given.run_id offset 0) as ours on true
     where not exists (select from pgflow.runs as parent where parent.run_id = ours.run_id)
       and not exists (select from pgflowd.runs as parent where parent.run_id = ours.run_id)
    union all
    select family.first, child.run_id
      from family
     cross join lateral (
       select one.run_id from pgflowd.runs as one where one.parent_run_id = family.run_id
        union all
       select one.run_id from pgflowd.runs as one where one.undo_of = family.run_id) as child
  )
  select family.first, family.run_id from family;
$$;
