-- _whole_families(run_ids): returns those of these runs whose family is among them as a whole, and those
-- that have none. The undo of a run belongs to its family.
-- Called by: pgflow.prune_data_older_than.   Locks: nothing.
create or replace function pgflowd._whole_families(run_ids uuid[])
returns uuid[] language plpgsql set search_path = '' as $$
declare
  whole uuid[] := run_ids;
  torn uuid[];
begin
  loop
    torn := array(   -- a child without its parent, or the other way round
      select coalesce(child.run_id, parent.run_id)
        from pgflowd.runs as ours
        left join unnest(whole) as child (run_id) on child.run_id = ours.run_id
        left join unnest(whole) as parent (run_id)
          on parent.run_id = coalesce(ours.undo_of, ours.parent_run_id)
       where (ours.parent_run_id is not null or ours.undo_of is not null) and (child.run_id is null) <> (parent.run_id is null)
         and (parent.run_id is not null
              or exists (select from pgflowd.run_status as known
                          where known.run_id = coalesce(ours.undo_of, ours.parent_run_id))));
    exit when torn = '{}';
    whole := array(select one from unnest(whole) as one except select one from unnest(torn) as one);
  end loop;
  return whole;
end $$;
