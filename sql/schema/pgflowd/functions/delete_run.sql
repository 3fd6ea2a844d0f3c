-- delete_run(run_id, actor): deletes a run that has ended, with all that belongs to it, and the runs that its
-- tasks have started; returns how many runs. PF002 for an unknown run; PF023 for one that cannot be
-- deleted: it or one below it is open or being undone, it belongs to another run, or something still looks
-- for it (_needed_runs). Its undo goes with it.
-- Called by: clients, commands, operators.
-- Locks: the run and those below it, ascending; then all that is deleted.
create or replace function pgflowd.delete_run(run_id uuid, actor text default null)
returns int language plpgsql security definer set search_path = '', pg_temp as $$
declare
  run record;
  family uuid[];
  open_run record;
begin
  perform from pgflow.runs as known
    where known.run_id in (select one.run_id from pgflowd._families(array[delete_run.run_id]) as one)
    order by known.run_id for update;
  perform from pgflowd.runs as known  -- of one that never began
    where known.run_id = delete_run.run_id and known.state = 'ended' for update;
  select known.flow_slug, known.status, coalesce(ours.undo_of, ours.parent_run_id) as above into run
    from pgflowd.run_status as known
    left join pgflowd.runs as ours on ours.run_id = known.run_id
   where known.run_id = delete_run.run_id;
  if not found then
    raise exception 'there is no run %', delete_run.run_id using errcode = 'PF002';
  end if;
  family := array(select one.run_id from pgflowd._families(array[delete_run.run_id]) as one);
  if family = '{}' then
    raise exception 'run % cannot be deleted: it belongs to run %', delete_run.run_id, run.above
      using errcode = 'PF023', hint = 'delete that run: what belongs to it goes with it';
  end if;
  select known.run_id, known.status into open_run
    from unnest(family) as one (run_id)
   cross join lateral (
     select given.run_id, given.status, given.ended_at from pgflowd.run_status as given
      where given.run_id = one.run_id offset 0) as known
   where known.ended_at is null or known.status = 'undoing' limit 1;
  if found then
    raise exception 'run % cannot be deleted: % %', delete_run.run_id,
      case when open_run.run_id = delete_run.run_id then 'it is'
           else format('run %s, which belongs to it, is', open_run.run_id) end, open_run.status
      using errcode = 'PF023',
            hint = case when open_run.status = 'undoing' then 'try it again when it is undone'
                        else format('`pgflowd runs cancel %s` ends it', open_run.run_id) end;
  end if;
  if exists (select from pgflowd._needed_runs(family)) then
    raise exception 'run % cannot be deleted yet: a run waits for its end, or the sweeper has to look at it',
      delete_run.run_id
      using errcode = 'PF023',
            hint = 'try it again in a moment, while a daemon runs; see `pgflowd runs list --status blocked`';
  end if;
  perform pgflowd._record_action(
    'delete_run', delete_run.actor, delete_run.run_id, run.flow_slug,
    data => jsonb_build_object('status', run.status, 'runs', cardinality(family)));
  perform pgflowd._delete_messages(family, 'a');
  perform pgflowd._delete_runs(family);
  return cardinality(family);
end $$;
