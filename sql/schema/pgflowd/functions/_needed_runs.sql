-- _needed_runs(run_ids): returns those of these runs, which have ended, that something still looks for:
-- a run or task that waits for their end and has not been told, their undo, or the sweep. An expiry that
-- is still to come does not count.
-- Called by: delete_run, _prune, pgflow.prune_data_older_than.   Locks: nothing.
create or replace function pgflowd._needed_runs(run_ids uuid[])
returns setof uuid language sql stable set search_path = '', pg_temp as $$
  select given.run_id
    from unnest(_needed_runs.run_ids) as given (run_id)
   where exists (
           select from pgflowd.runs as ours
            where ours.run_id = given.run_id
              and (ours.holds_key or ours.undo_state in ('wanted', 'undoing')
                   or ours.due_at is not null
                      and (ours.due_at <= now() or ours.due_at is distinct from ours.expires_at)))
      or exists (
           select from pgflowd.awaits as one
            where one.awaited = given.run_id
              and (exists (select from pgflow.runs as waiter
                            where waiter.run_id = one.run_id and waiter.status = 'started')
                   or exists (select from pgflowd.runs as waiter
                               where waiter.run_id = one.run_id and waiter.state = 'planned')));
$$;
