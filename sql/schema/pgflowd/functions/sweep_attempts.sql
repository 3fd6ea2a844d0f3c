-- sweep_attempts(before_page, max_tasks): recovers what no message leads to: started tasks whose lease has
-- lapsed, and whose message is gone, get a new one; attempts whose worker vanished after their run or step had
-- ended, a minute after their lease, are closed. It looks at the attempts in some pages of their table, those
-- before `before_page`, or the last ones if that is null, so that it costs the same in a large database, and a
-- claim or report nothing. Returns how many tasks were queued again, how many given up, and before which page to
-- look next: null, from the end again.
-- Called by: recover_stalled; the sweeper.
-- Locks: runs, tasks, skipping locked ones; attempts; queue rows, skipping; new messages.
create or replace function pgflowd.sweep_attempts(
  before_page bigint default null, max_tasks int default 500,
  out recovered int, out given_up int, out next_page bigint)
language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  last_page bigint := coalesce(sweep_attempts.before_page, pg_relation_size('pgflowd.attempts')
                               / current_setting('block_size')::bigint);
  lapsed record;
  held record;
  free_runs uuid[];
begin
  next_page := nullif(greatest(0, last_page - greatest(1, 256::bigint * sweep_attempts.max_tasks / 500)), 0);
  select array_agg(one.run_id) as run_ids, array_agg(one.step_slug) as step_slugs,
         array_agg(one.task_index) as task_indexes, array_agg(one.token) as tokens
    into lapsed
    from (select attempt.* from pgflowd.attempts as attempt
           where attempt.ctid >= format('(%s,0)', coalesce(next_page, 0))::tid
             and attempt.ctid < format('(%s,0)', last_page)::tid
             and attempt.ended_at is null and attempt.lease_until < clock_timestamp()
           limit sweep_attempts.max_tasks) as one;
  recovered := 0;
  given_up := 0;
  if lapsed.run_ids is null then
    return;
  end if;
  free_runs := array(select run.run_id from pgflow.runs as run
                      where run.run_id = any (lapsed.run_ids)
                      order by run.run_id for no key update skip locked);
  select array_agg(free.run_id) as run_ids, array_agg(free.step_slug) as step_slugs,
         array_agg(free.task_index) as task_indexes
    into held
    from (select task.run_id, task.step_slug, task.task_index
            from unnest(lapsed.run_ids, lapsed.step_slugs, lapsed.task_indexes)
                 as one (run_id, step_slug, task_index)
            join pgflow.step_tasks as task using (run_id, step_slug, task_index)
           where task.run_id = any (free_runs)
           order by task.run_id, task.step_slug, task.task_index
             for no key update of task skip locked) as free;

  update pgflowd.attempts as attempt
     set ended_at = now(), outcome = 'lost', error_message = 'its worker vanished after it was to end'
    from unnest(held.run_ids, held.step_slugs, held.task_indexes) as one (run_id, step_slug, task_index)
    join pgflow.runs as run on run.run_id = one.run_id
    join pgflow.step_states as state on state.run_id = one.run_id and state.step_slug = one.step_slug
    join pgflow.step_tasks as task
      on task.run_id = one.run_id and task.step_slug = one.step_slug and task.task_index = one.task_index
   where attempt.run_id = one.run_id and attempt.step_slug = one.step_slug
     and attempt.task_index = one.task_index and attempt.token = any (lapsed.tokens)
     and attempt.ended_at is null and attempt.lease_until < clock_timestamp() - interval '1 minute'
     and (run.status <> 'started' or state.status <> 'started' or task.status <> 'started'
          or attempt.attempt <> task.attempts_count);
  select done.recovered, done.given_up into recovered, given_up
    from (values (1)) as once
   cross join lateral (
     select array_agg(one.run_id) as run_ids, array_agg(one.step_slug) as step_slugs,
            array_agg(one.task_index) as task_indexes
       from unnest(held.run_ids, held.step_slugs, held.task_indexes) as one (run_id, step_slug, task_index)
       join pgflow.runs as run on run.run_id = one.run_id and run.status = 'started'
       join pgflow.step_states as state
         on state.run_id = one.run_id and state.step_slug = one.step_slug and state.status = 'started') as open
   cross join lateral pgflowd._recover_tasks(
     open.run_ids, open.step_slugs, open.task_indexes, 'its lease lapsed', true) as done;
  perform pgflowd._send_lost(held.run_ids, held.step_slugs, held.task_indexes);
end $$;
