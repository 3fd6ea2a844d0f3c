-- prune_next(older_than, flow_slug, keep_failed, max_runs, only_count, after_at, after_run, actor, labels): does
-- a part of what `prune` does, in a transaction of its own: among the runs that began next after
-- `after_at` (null: the oldest). Or it only counts them. Returns how many, and after which run to go on:
-- null at the end. The action is kept with the part that has an actor, so the command names one once.
-- Called by: `pgflowd runs prune`.   Locks: see _prune.
create or replace function pgflowd.prune_next(
  older_than interval, flow_slug text, keep_failed boolean, max_runs int, only_count boolean,
  inout after_at timestamptz, inout after_run uuid, actor text, out pruned int,
  labels jsonb default null)
language plpgsql set search_path = '', pg_temp as $$
declare
  before constant timestamptz := now() - prune_next.older_than;
begin
  select step.pruned, step.after_at, step.after_run into pruned, after_at, after_run
    from pgflowd._prune(before, case when not prune_next.keep_failed then before end,
                        prune_next.flow_slug, prune_next.max_runs, prune_next.only_count,
                        prune_next.after_at, prune_next.after_run, prune_next.labels) as step;
  if prune_next.only_count then
    return;
  end if;
  if after_at is null then
    perform pgflowd._prune_leftovers(before, prune_next.flow_slug);
  end if;
  if prune_next.actor is not null and pruned > 0 then
    perform pgflowd._record_action(
      'prune', prune_next.actor, flow_slug => prune_next.flow_slug,
      data => jsonb_strip_nulls(jsonb_build_object(
        'older_than', prune_next.older_than, 'keep_failed', prune_next.keep_failed,
        'labels', prune_next.labels)));
  end if;
end $$;
