-- set_limit(flow_slug, step_slug, slots, actor): from the next claim on the limit of this step has so many places.
-- The code does not change it any more. PF002 for a step without a limit.
-- Called by: `pgflowd flows limits`.   Locks: the step's options; see refill_limits.
create or replace function pgflowd.set_limit(
  flow_slug text, step_slug text, slots int, actor text default null)
returns void language plpgsql set search_path = '' as $$
declare
  limited text;
  old int;
  key text;
begin
  if set_limit.slots is null or set_limit.slots < 1 then
    raise exception 'a limit has 1 place or more, not %', coalesce(set_limit.slots::text, 'null')
      using errcode = '22023';
  end if;
  select option.limit_name, option.limit_slots into limited, old from pgflowd.step_options as option
   where option.flow_slug = set_limit.flow_slug and option.step_slug = set_limit.step_slug
     and option.limit_slots is not null for no key update;
  if limited is null then
    raise exception 'step % of flow % has no limit', set_limit.step_slug, set_limit.flow_slug
      using errcode = 'PF002', hint = format('`pgflowd flows limits %s` lists those that have one', set_limit.flow_slug);
  end if;
  if old = set_limit.slots then
    return;
  end if;
  update pgflowd.step_options as option set limit_slots = set_limit.slots
   where option.flow_slug = set_limit.flow_slug and option.step_slug = set_limit.step_slug;
  perform pgflowd._record_action(
    'set_limit', set_limit.actor, flow_slug => set_limit.flow_slug,
    step_slug => set_limit.step_slug, data => jsonb_build_object('slots', set_limit.slots, 'before', old));
  for key in
    select wait.name from pgflowd.waits as wait
     where wait.kind = 'limit' and (wait.name = limited or starts_with(wait.name, limited || ':'))
     group by 1 order by 1 limit 1000
  loop
    perform pgflowd._try_fill_slots(key);
  end loop;
end $$;
