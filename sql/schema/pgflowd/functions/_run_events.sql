-- _run_events(run_id): the beginning and the end of a run, of its children and of its undos, see
-- run_timeline. `rank` orders what has the same moment. An undo for which there was nothing to do has no
-- run, and ended as it was wanted. Who asked for a run that began at once stands at its start.
-- Called by: run_timeline.   Locks: nothing.
create or replace function pgflowd._run_events(run_id uuid)
returns table (at timestamptz, event text, actor text, detail jsonb, rank int)
language sql stable set search_path = '', pg_temp as $$
  with family as (
    select ours.run_id as id, 'child:' as kind, ours.parent_step, ours.parent_index
      from pgflowd.runs as ours where ours.parent_run_id = _run_events.run_id
    union all
    select ours.run_id, 'undo:', null, null
      from pgflowd.runs as ours where ours.undo_of = _run_events.run_id
    union all
    select _run_events.run_id, 'run:', null, null
  ), member as (
    select family.*, coalesce(core.flow_slug, ours.flow_slug) as flow_slug, core.started_at,
           coalesce(core.ended_at, case when ours.state = 'ended'
                                        then coalesce(ours.cancelled_at, ours.expired_at) end)
             as ended_at,
           case when core.status = 'completed' then 'completed'
                when ours.expired_at is not null then 'expired'
                when ours.cancelled_at is not null then 'cancelled' else 'failed' end as ended_as,
           core.error_message, ours.created_at, ours.created_by, ours.start_at, ours.expires_at,
           ours.labels, ours.singleton_key, ours.cancelled_by, ours.cancel_reason,
           ours.parent_run_id, ours.undo_state, ours.undo_wanted_at, ours.undo_by, ours.undo_reason,
           max(core.ended_at) filter (where family.kind = 'undo:') over () as undo_ended_at,
           ours.state <> 'started' or ours.created_at < core.started_at as was_planned
      from family
      left join lateral (
        select one.* from pgflowd.runs as one where one.run_id = family.id offset 0) as ours on true
      left join lateral (
        select one.*
          from (values (null::text)) as missing (error_message)
         cross join lateral (
           select run.flow_slug, run.status, run.started_at,
                  coalesce(run.completed_at, run.failed_at) as ended_at, error_message
             from pgflow.runs as run where run.run_id = family.id offset 0) as one) as core on true
  ), told as (
    select member.*, one.*
      from member
     cross join lateral (values
       (member.created_at, 'planned', member.was_planned, member.created_by, 1),
       (member.started_at, 'started', true,
        case when member.was_planned is not true then member.created_by end, 2),
       (member.ended_at, member.ended_as, true,
        case when member.ended_as = 'cancelled' then member.cancelled_by end, 9),
       (member.undo_wanted_at, 'undoing', member.kind = 'run:', member.undo_by, 10),
       (greatest(member.undo_ended_at, member.undo_wanted_at), member.undo_state,
        member.kind = 'run:' and member.undo_state in ('undone', 'undo_failed'), null, 11))
       as one (at, word, did_happen, actor, rank)
     where one.did_happen and one.at is not null
  )
  select told.at, told.kind || told.word, told.actor,
         case when told.kind <> 'run:' then jsonb_build_object(
                'run_id', told.id, 'flow', told.flow_slug, 'step', told.parent_step,
                'task', told.parent_index)
              when told.word = 'planned' then jsonb_build_object(
                'start_at', told.start_at, 'expires_at', told.expires_at, 'labels', told.labels,
                'singleton', told.singleton_key)
              when told.word = 'started' then jsonb_build_object(
                'flow', told.flow_slug, 'parent_run_id', told.parent_run_id)
              when told.word = 'cancelled' then jsonb_build_object('reason', told.cancel_reason)
              when told.word = 'undoing' then jsonb_build_object('reason', told.undo_reason)
              when told.word = 'failed' then jsonb_build_object('error', told.error_message) end,
         told.rank
    from told;
$$;
