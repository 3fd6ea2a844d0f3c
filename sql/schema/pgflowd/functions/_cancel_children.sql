-- _cancel_children(run_ids): cancels children of those of these runs that were cancelled, have expired,
-- or are undone: a hundred at most, since each costs a millisecond, and no further one once those have had
-- ten thousand open tasks. Returns those of these runs of which
-- children are still open, or are locked just now: look again soon.
-- Called by: _process_runs.
-- Locks: the children, skipping locked ones; see _cancel. The caller holds the runs.
create or replace function pgflowd._cancel_children(run_ids uuid[])
returns uuid[] language plpgsql set search_path = '', pg_temp as $$
declare
  most constant int := 100;
  max_tasks constant bigint := 10000;
  child record;
  is_free boolean;
  left_over uuid[] := '{}';
  tasks bigint := 0;
begin
  for child in
    select one.run_id, one.state, parent.run_id as parent_run_id,
           format('parent run %s %s', parent.run_id,
                  case when parent.expired_at is not null then 'has expired'
                       when parent.cancelled_at is not null then 'was cancelled'
                       else 'is undone' end) as reason,
           row_number() over () as nr
      from unnest(_cancel_children.run_ids) as given (run_id)
     cross join lateral (
       select known.run_id, known.expired_at, known.cancelled_at from pgflowd.runs as known
        where known.run_id = given.run_id and known.state = 'started'
          and (known.cancelled_at is not null or known.undo_state is not null) offset 0) as parent
     cross join lateral (
       select known.run_id, known.state from pgflowd.runs as known
        where known.parent_run_id = parent.run_id
          and (known.state = 'planned' or known.state = 'started' and exists (
            select from pgflow.runs as core
             where core.run_id = known.run_id and core.status = 'started'))
        limit most + 1) as one
  loop
    if child.nr > most or tasks >= max_tasks then
      is_free := false;
    elsif child.state = 'planned' then
      perform from pgflowd.runs as run
        where run.run_id = child.run_id and run.state = 'planned' for update skip locked;
      is_free := found;
    else
      perform from pgflow.runs as run
        where run.run_id = child.run_id and run.status = 'started' for no key update skip locked;
      is_free := found;
    end if;
    if is_free then
      tasks := tasks + coalesce((select sum(coalesce(state.remaining_tasks, 0)) from pgflow.step_states as state
                                  where state.run_id = child.run_id), 0);
      perform pgflowd._cancel(child.run_id, child.reason, 'pgflowd');
    else
      left_over := left_over || child.parent_run_id;
    end if;
  end loop;
  return left_over;
end $$;
