-- _pass_gates(flow_slug, queue_name, msg_ids, most, caps, met_needs): which of these messages, which a claim
-- has read and hidden, a worker with these caps may begin.
--   may_begin   up to `most`; if there are more, the others are visible again. Those whose step is limited
--               have a place of the limit, and `are_limited` says that there are such
--   others      their tasks are at work, have ended, are paused, or are locked: they are not looked at
-- All others are put aside: their tasks wait for a worker that has what they need, or for a place of their
-- limit, and have no message any more, so that nobody meets them again. Where another claim decides about
-- a limit, the message is visible again in 20 ms. `met_needs`: of tasks that have waited for this worker.
-- While the flow is being defined nothing is put aside, since what it asks for may change: so a definition,
-- which waits for this transaction, finds all tasks that wait.
-- Called by: claim, task_claim.
-- Locks: the flow's definition, shared, if it is free; tasks, skipping locked ones; see _check_limits;
-- messages; waits; slots.
create or replace function pgflowd._pass_gates(
  flow_slug text, queue_name text, msg_ids bigint[], most int, caps text[], met_needs text[],
  out may_begin bigint[], out others bigint[], out has_put_aside boolean, out are_limited boolean)
language plpgsql set search_path = '', pg_temp as $$
declare
  locked record;
  judged pgflowd.gated[];
  begins int;
  aside bigint[];
  back bigint[];
begin
  select array_agg(task.run_id) as run_ids, array_agg(task.step_slug) as step_slugs,
         array_agg(task.task_index) as task_indexes, array_agg(task.message_id) as msg_ids,
         array_agg(read.needs) as needs
    into locked
    from unnest(_pass_gates.msg_ids, _pass_gates.met_needs) as read (msg_id, needs)
   cross join lateral (
     select one.run_id, one.step_slug, one.task_index, one.message_id from pgflow.step_tasks as one
      where one.flow_slug = _pass_gates.flow_slug and one.message_id = read.msg_id
        and one.status = 'queued'
     offset 0 for no key update skip locked) as task;

  -- a statement of its own, so that it sees a run that ended while the tasks were locked
  select array_agg((one.msg_id, one.run_id, one.step_slug, one.task_index,
           case when one.met_needs is null and asked.needs is not null
                     and (asked.needs <@ _pass_gates.caps) is not true then 'need'
                when asked.limit_slots is not null then 'limit' else 'go' end,
           coalesce(one.met_needs, array_to_string(asked.needs, ',')),
           case when asked.limit_slots is not null and asked.limit_path is null
                  then pgflowd._limit_key(asked.limit_name, null, null)
                when asked.limit_slots is not null and asked.limit_path[1] = 'run'
                  then pgflowd._limit_key(asked.limit_name, asked.limit_path,
                                          run.input #>> asked.limit_path[2:]) end,
           asked.limit_slots)::pgflowd.gated order by one.msg_id)
    into judged
    from unnest(locked.run_ids, locked.step_slugs, locked.task_indexes, locked.msg_ids, locked.needs)
         as one (run_id, step_slug, task_index, msg_id, met_needs)
   cross join lateral (
     select known.input from pgflow.runs as known
      where known.run_id = one.run_id and known.status = 'started' and not known.is_paused
     offset 0) as run
   cross join lateral (
     select from pgflow.step_states as state
      where state.run_id = one.run_id and state.step_slug = one.step_slug
        and state.status = 'started' offset 0) as state
    left join lateral (
      select option.* from pgflowd.step_options as option
       where option.flow_slug = _pass_gates.flow_slug
         and option.step_slug = one.step_slug offset 0) as asked on true;
  others := array(select read.msg_id from unnest(_pass_gates.msg_ids) as read (msg_id)
                   where read.msg_id <> all (array(select one.msg_id from unnest(judged) as one)));
  are_limited := exists (select from unnest(judged) as one where one.fate = 'limit');
  if are_limited then
    if exists (select from unnest(judged) as one where one.fate = 'limit' and one.limit_key is null) then
      judged := pgflowd._limit_items(_pass_gates.flow_slug, judged);
    end if;
    judged := pgflowd._check_limits(judged);
  end if;

  -- what is more than enough keeps its place in the line: those behind it are not put aside
  select array_agg((one.msg_id, one.run_id, one.step_slug, one.task_index,
           case when one.fate = 'limit' and one.is_behind then 'more' else one.fate end,
           one.needs, one.limit_key, one.most)::pgflowd.gated order by one.msg_id),
         count(*) filter (where one.fate = 'go')
    into judged, begins
    from (select ranked.*,
                 coalesce(bool_or(ranked.fate = 'more') over (partition by ranked.limit_key), false)
                 and ranked.limit_key is not null as is_behind
            from (select task.msg_id, task.run_id, task.step_slug, task.task_index,
                         case when task.fate = 'go' and row_number() over (
                                     partition by task.fate order by task.msg_id) > _pass_gates.most
                              then 'more' else task.fate end as fate,
                         task.needs, task.limit_key, task.most
                    from unnest(judged) as task) as ranked) as one;
  may_begin := array(select one.msg_id from unnest(judged) as one where one.fate = 'go');
  if are_limited and begins > 0 then
    insert into pgflowd.slots (run_id, step_slug, task_index, limit_key, most)
    select one.run_id, one.step_slug, one.task_index, one.limit_key, one.most
      from unnest(judged) as one where one.fate = 'go' and one.limit_key is not null
    on conflict on constraint slots_pkey do update
       set limit_key = excluded.limit_key, most = excluded.most, given_at = null, free_at = null;
  end if;
  back := array(select one.msg_id from unnest(judged) as one where one.fate = 'more');
  if back <> '{}' then
    perform pgflowd._make_visible(queue_name, back, clock_timestamp());
    perform pgflowd._ring(queue_name);
  end if;
  back := array(select one.msg_id from unnest(judged) as one where one.fate = 'later');
  if back <> '{}' then
    perform pgflowd._make_visible(queue_name, back, clock_timestamp() + interval '20 ms');
  end if;

  aside := array(select one.msg_id from unnest(judged) as one where one.fate in ('need', 'limit'));
  has_put_aside := aside <> '{}';
  if not has_put_aside then
    return;
  end if;
  perform from pgflowd.locks as lock
    where lock.kind = 'flow' and lock.name = lower(_pass_gates.flow_slug collate "C") for share skip locked;
  if not found
     and not pgflowd._lock_name('flow', lower(_pass_gates.flow_slug collate "C"), false) then
    perform pgflowd._make_visible(queue_name, aside, clock_timestamp() + interval '1 s');
    return;
  end if;
  insert into pgflowd.waits (run_id, step_slug, task_index, flow_slug, kind, name, needs)
  select one.run_id, one.step_slug, one.task_index, _pass_gates.flow_slug, one.fate,
         case one.fate when 'need' then one.needs else one.limit_key end,
         case when one.fate = 'limit' and _pass_gates.met_needs is not null then one.needs end
    from unnest(judged) as one where one.fate in ('need', 'limit') order by one.msg_id
  on conflict on constraint waits_pkey do nothing;
  execute format('delete from %s where msg_id = any ($1)', pgflowd._queue_table(queue_name)) using aside;
  perform pgflowd._wake(queue_name)
    where exists (select from unnest(judged) as one where one.fate = 'need');
end $$;
