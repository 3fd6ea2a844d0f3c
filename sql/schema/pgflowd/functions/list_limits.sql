-- list_limits(flow_slug, max_rows): the limits of a flow's steps that are in use, those first for which
-- most tasks wait: how many places there are, how many are taken, how many tasks wait, since when the
-- first of them, and who has places. One that is not in use is listed by its name.
-- Called by: `pgflowd flows limits`.   Locks: nothing.
create or replace function pgflowd.list_limits(flow_slug text, max_rows int default 20)
returns table (limit_key text, steps text[], slots int, taken int, waiting bigint,
               first_since timestamptz, holders text[])
language sql stable set search_path = '', pg_temp as $$
  with limited as (
    select option.limit_name as name, array_agg(distinct option.step_slug order by option.step_slug) as steps,
           max(option.limit_slots) as slots
      from pgflowd.step_options as option
     where option.flow_slug = any (pgflowd.flows_of(list_limits.flow_slug)) and option.limit_slots is not null
     group by 1
  ), place as (
    select slot.*
      from limited
      join pgflowd.slots as slot
        on slot.limit_key = limited.name or starts_with(slot.limit_key, limited.name || ':')
     where slot.free_at is null
       and (slot.given_at > now() - interval '30 s' or exists (
         select from pgflowd.attempts as attempt
          where attempt.run_id = slot.run_id and attempt.step_slug = slot.step_slug
            and attempt.task_index = slot.task_index and attempt.ended_at is null))
  ), waiter as (
    select wait.name as limit_key, count(*) as tasks, min(wait.since) as first_since
      from limited
      join pgflowd.waits as wait
        on wait.kind = 'limit' and not wait.is_paused
       and (wait.name = limited.name or starts_with(wait.name, limited.name || ':'))
     group by 1
  ), used as (
    select place.limit_key from place union select waiter.limit_key from waiter
  )
  select coalesce(used.limit_key, limited.name), limited.steps, limited.slots,
         (select count(*)::int from place where place.limit_key = used.limit_key),
         coalesce(waiter.tasks, 0), waiter.first_since,
         array(select format('%s/%s#%s', place.run_id, place.step_slug, place.task_index)
                 from place where place.limit_key = used.limit_key
                order by 1 limit 10)
    from limited
    left join used
      on used.limit_key = limited.name or starts_with(used.limit_key, limited.name || ':')
    left join waiter on waiter.limit_key = used.limit_key
   order by coalesce(waiter.tasks, 0) desc, 1
   limit list_limits.max_rows;
$$;
