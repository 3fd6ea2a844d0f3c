-- prune_expired(max_runs, after_at, after_run, is_skipped): deletes runs that are older than the settings
-- retention_completed and retention_failed allow, and actions older than retention_actions, a part at a
-- time as prune_next: of messages, actions and locks a hundred times as many as runs; at the end rows of
-- `locks` that nobody has locked. With `is_skipped` it deletes nothing, and only goes past the next ones.
-- Returns how many runs (null: another sweeper is at it), and after which run to go on: null at the end.
-- Security definer, since a worker's role may delete no run: it may only have done what owners have set.
-- Called by: the sweeper.   Locks: see _prune; actions; locks.
create or replace function pgflowd.prune_expired(
  max_runs int, inout after_at timestamptz default null, inout after_run uuid default null,
  is_skipped boolean default false,
  out pruned int)
language plpgsql security definer set search_path = '', pg_temp as $$
declare
  completed_before constant timestamptz :=
    now() - (pgflowd.setting('retention_completed') #>> '{}')::interval;
  others_before constant timestamptz :=
    now() - (pgflowd.setting('retention_failed') #>> '{}')::interval;
  actions_before constant timestamptz :=
    now() - (pgflowd.setting('retention_actions') #>> '{}')::interval;
begin
  if not pgflowd._lock_name('work', 'prune_expired', false) then
    after_at := null;
    after_run := null;
    return;
  end if;
  pruned := 0;
  if completed_before is not null or others_before is not null then
    select step.pruned, step.after_at, step.after_run into pruned, after_at, after_run
      from pgflowd._prune(completed_before, others_before, null, prune_expired.max_runs, prune_expired.is_skipped,
                          prune_expired.after_at, prune_expired.after_run) as step;
    if after_at is null and not prune_expired.is_skipped then
      perform pgflowd._prune_leftovers(coalesce(completed_before, others_before), null,
                                       100 * prune_expired.max_runs);
    end if;
  end if;
  if after_at is null and not prune_expired.is_skipped then
    delete from pgflowd.actions as action
     where action.action_id = any (array(
       select one.action_id from pgflowd.actions as one
        where one.at < actions_before order by one.at limit 100 * prune_expired.max_runs));
    perform pgflowd._prune_locks(100 * prune_expired.max_runs);
  end if;
end $$;
