-- limit_violations(max_rows): returns I17: limits of which more places are taken than there were when
-- they were taken.
-- Called by: violations; `pgflowd doctor`.   Locks: nothing.
create or replace function pgflowd.limit_violations(max_rows int default 20)
returns table (invariant text, flow_slug text, run_id uuid, step_slug text, task_index int,
               detail text)
language sql stable set search_path = '', pg_temp as $$
  select 'I17', null::text, null::uuid, null::text, null::int,
         format('limit %L has %s places, and %s leases', lease.limit_key, max(slot.most), count(*))
    from pgflowd.slots as slot
   cross join lateral (
     select attempt.limit_key from pgflowd.attempts as attempt
      where attempt.run_id = slot.run_id and attempt.step_slug = slot.step_slug
        and attempt.task_index = slot.task_index and attempt.ended_at is null
        and attempt.limit_key is not null) as lease
   group by lease.limit_key
  having count(*) > max(slot.most)
   limit limit_violations.max_rows;
$$;
