-- prune(older_than, flow_slug, keep_failed, max_runs, actor): deletes runs that ended so long ago, the
-- oldest first, with all that belongs to them, of one flow or (null) of all; with `keep_failed` only
-- those that completed. Returns how many: about max_runs, since families go whole; less if there are no
-- more. A run stays with its whole family while one of it is open, younger or locked, while somebody
-- waits for its end, and while the sweep is to look at it. All in one transaction: for more than some
-- thousands call it again, or use `pgflowd runs prune`.
-- Called by: operators.   Locks: see _prune.
create or replace function pgflowd.prune(
  older_than interval, flow_slug text default null, keep_failed boolean default false,
  max_runs int default 1000, actor text default null)
returns int language plpgsql set search_path = '', pg_temp as $$
declare
  before constant timestamptz := now() - prune.older_than;
  total int := 0;
  pruned int;
  after_at timestamptz;
  after_run uuid;
begin
  if before is null then  -- else it would take archived messages of any age
    raise exception 'a prune needs a duration' using errcode = '22004', hint = 'write for example 30 days';
  end if;
  loop
    select step.pruned, step.after_at, step.after_run into pruned, after_at, after_run
      from pgflowd._prune(before, case when not prune.keep_failed then before end, prune.flow_slug,
                          least(100, prune.max_runs - total), false, after_at, after_run) as step;
    total := total + pruned;
    exit when after_at is null or total >= prune.max_runs;
  end loop;
  perform pgflowd._prune_leftovers(before, prune.flow_slug);
  if total > 0 then
    perform pgflowd._record_action(
      'prune', prune.actor, flow_slug => prune.flow_slug,
      data => jsonb_build_object('older_than', prune.older_than, 'keep_failed', prune.keep_failed,
                                 'runs', total));
  end if;
  return total;
end $$;
