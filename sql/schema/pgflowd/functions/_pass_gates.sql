-- _pass_gates(flow_slug, queue_name, msg_ids, most, caps): which of these messages, which a claim has read
-- and hidden, a worker with these caps may begin.
--   may_begin   up to `most`; if there are more, the others are visible again
--   others      their tasks are at work, have ended, or are locked: they are not looked at
-- All others are put aside: their tasks wait for a worker that has what they need, and have no
-- message any more, so that nobody meets them again.
-- While the flow is being defined nothing is put aside, since what it needs may change: so a definition,
-- which waits for this transaction, finds all tasks that wait.
-- Called by: claim, task_claim.
-- Locks: the flow's definition, shared, if it is free; tasks, skipping locked ones;
-- messages; waits.
create or replace function pgflowd._pass_gates(
  flow_slug text, queue_name text, msg_ids bigint[], most int, caps text[],
  out may_begin bigint[], out others bigint[], out has_put_aside boolean)
language plpgsql set search_path = '' as $$
declare
  locked record;
  judged record;
begin
  select array_agg(task.run_id) as run_ids, array_agg(task.step_slug) as step_slugs,
         array_agg(task.task_index) as task_indexes, array_agg(task.message_id) as msg_ids
    into locked
    from unnest(_pass_gates.msg_ids) as read (msg_id)
   cross join lateral (
     select one.run_id, one.step_slug, one.task_index, one.message_id from pgflow.step_tasks as one
      where one.flow_slug = _pass_gates.flow_slug and one.message_id = read.msg_id
        and one.status = 'queued'
     offset 0 for no key update skip locked) as task;

  -- a statement of its own, so that it sees a run that ended while the tasks were locked
  select array_agg(task.msg_id order by task.msg_id) filter (where task.is_covered) as covered,
         array_agg(task.msg_id) filter (where not task.is_covered) as msg_ids,
         array_agg(task.run_id) filter (where not task.is_covered) as run_ids,
         array_agg(task.step_slug) filter (where not task.is_covered) as step_slugs,
         array_agg(task.task_index) filter (where not task.is_covered) as task_indexes,
         array_agg(task.needs) filter (where not task.is_covered) as needs
    into judged
    from (select one.*, array_to_string(asked.needs, ',') as needs,
                 asked.needs is null
                 or coalesce(asked.needs <@ _pass_gates.caps, false) as is_covered
            from unnest(locked.run_ids, locked.step_slugs, locked.task_indexes, locked.msg_ids)
                 as one (run_id, step_slug, task_index, msg_id)
           cross join lateral (
             select from pgflow.runs as run
              where run.run_id = one.run_id and run.status = 'started' offset 0) as run
           cross join lateral (
             select from pgflow.step_states as state
              where state.run_id = one.run_id and state.step_slug = one.step_slug
                and state.status = 'started' offset 0) as state
            left join lateral (
              select option.needs from pgflowd.step_options as option
               where option.flow_slug = _pass_gates.flow_slug
                 and option.step_slug = one.step_slug offset 0) as asked on true) as task;
  may_begin := coalesce(judged.covered[:most], '{}');
  others := array(select read.msg_id from unnest(_pass_gates.msg_ids) as read (msg_id)
                   where read.msg_id <> all (coalesce(judged.covered, '{}'))
                     and read.msg_id <> all (coalesce(judged.msg_ids, '{}')));
  if cardinality(judged.covered) > most then
    perform pgflowd._make_visible(queue_name, judged.covered[most + 1:], clock_timestamp());
    perform pgflowd._ring(queue_name);
  end if;

  has_put_aside := judged.msg_ids is not null;
  if not has_put_aside then
    return;
  elsif not pg_try_advisory_xact_lock_shared(1, hashtext(lower(_pass_gates.flow_slug collate "C"))) then
    perform pgflowd._make_visible(queue_name, judged.msg_ids,
                                  clock_timestamp() + interval '1 s');
    return;
  end if;
  insert into pgflowd.waits (run_id, step_slug, task_index, flow_slug, kind, name)
  select aside.run_id, aside.step_slug, aside.task_index, _pass_gates.flow_slug, 'need', aside.needs
    from unnest(judged.msg_ids, judged.run_ids, judged.step_slugs, judged.task_indexes, judged.needs)
         as aside (msg_id, run_id, step_slug, task_index, needs)
   order by aside.msg_id
  on conflict on constraint waits_pkey do nothing;
  perform pgmq.delete(queue_name, judged.msg_ids);
  perform pgflowd._wake(queue_name);
end $$;
