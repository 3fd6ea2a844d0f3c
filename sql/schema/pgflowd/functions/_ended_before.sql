-- _ended_before(run_ids, completed_before, others_before): returns those of these runs, in their order, that
-- completed before the one moment, or ended otherwise, or never began, before the other. One that was undone
-- is among the others. Where a moment is null there is none.
-- Called by: _prune.   Locks: nothing.
create or replace function pgflowd._ended_before(
  run_ids uuid[], completed_before timestamptz, others_before timestamptz)
returns setof uuid language sql stable set search_path = '', pg_temp as $$
  select given.run_id
    from unnest(_ended_before.run_ids) with ordinality as given (run_id, nr)
    left join lateral (
     select one.status, coalesce(one.completed_at, one.failed_at) as ended_at
       from pgflow.runs as one where one.run_id = given.run_id offset 0) as run on true
    left join lateral (
     select case when one.state = 'ended' then coalesce(one.cancelled_at, one.expired_at) end as ended_at,
            one.undo_state
       from pgflowd.runs as one where one.run_id = given.run_id offset 0) as ours on true
   where case when run.status = 'started' then false
              when run.status = 'completed' and ours.undo_state is null
                then run.ended_at < _ended_before.completed_before
              else coalesce(run.ended_at, ours.ended_at) < _ended_before.others_before end
   order by given.nr;
$$;
