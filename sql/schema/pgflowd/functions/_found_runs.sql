-- _found_runs(of_flow, statuses, since, until, with_labels, search, with_undos, with_input, with_key,
-- after_at, after_id, max_runs, max_seen): returns the newest runs that fit, behind the one that began at
-- `after_at` and has the id `after_id`, and how far it has looked. `seen` is how many it has examined; what is older than
-- `end_at` and `end_id` is left for the next page, null if nothing is. `is_behind`: it is older itself,
-- and was met although others between may not have been. If no run fits, one row says how far it looked.
-- No index knows a status or a text, so it looks at `max_seen` runs that have begun, and at as many that
-- have not, or never did, in the order of their indexes, those of each version of a flow and of each
-- state by themselves. It looks at no others than those that can fit where they are known by an index
-- and are few: the run whose whole id is the text, the one that was started with this key of the flow, those
-- with these labels, those with tasks that wait.
-- Its query is planned for the very arguments. It reads no output, an input only if a value of it is wanted,
-- waits only of open runs, their steps only where something waits, and nothing more of runs whose status in
-- the core cannot fit.
-- `missing` stands for columns that some cores do not have, as in news.
-- Called by: count_runs, list_runs, search_runs.   Locks: nothing.
create or replace function pgflowd._found_runs(
  of_flow text, statuses text[], since timestamptz, until timestamptz, with_labels jsonb, search text,
  with_undos boolean, with_input jsonb, with_key text, after_at timestamptz, after_id uuid,
  max_runs int, max_seen int)
returns table (run_id uuid, at timestamptz, is_behind boolean, seen bigint, end_at timestamptz,
               end_id uuid)
language plpgsql stable set search_path = '', pg_temp
set jit = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  few constant int := 2000;
  sought constant text := nullif(lower(_found_runs.search), '');
  whole_id constant uuid := case when replace(sought, '-', '') ~ '^[0-9a-f]{32}$'
                                 then replace(sought, '-', '') end;
  flows constant text[] := case when _found_runs.of_flow is not null
                                then pgflowd.flows_of(_found_runs.of_flow) end;
  ids uuid[];
  scans text[];  -- of runs that have begun, and of others
begin
  if _found_runs.with_key is not null then
    ids := array[pgflowd._run_id_of_key(pgflowd._name_of(_found_runs.of_flow), _found_runs.with_key)];
  elsif exists (select from pgflow.runs as run where run.run_id = whole_id)
     or exists (select from pgflowd.runs as run where run.run_id = whole_id) then
    ids := array[whole_id];
  elsif _found_runs.statuses <@ '{waiting,quarantined}' then
    ids := array(select wait.run_id from pgflowd.waits as wait limit few + 1);
  elsif _found_runs.with_labels is not null then
    ids := pgflowd._labelled_runs(_found_runs.with_labels, few);
  end if;
  if cardinality(ids) > few then
    ids := null;
  end if;
  scans := array(
    select string_agg(replace(replace(scan.query, '@runs', case when ids is null then scan.runs
        else format('(select distinct given.id from unnest($2) as given (id)) as given'
                    ' cross join lateral (select run.* from %s as run'
                    ' where run.run_id = given.id offset 0)', scan.runs) end),
        '@flow', case when flows is null then 'true' else format('one.flow_slug = ($1)[%s]', nr) end),
        ' union all ')
      from (values (1, 'pgflow.runs', $query$
             (select one.run_id, one.started_at as at, one.status, error_message, is_paused
                from @runs as one
               where $5 and @flow and one.started_at > $7 and one.started_at <= least($8, $9)
                 and (one.started_at < $9 or one.run_id < $10)
               order by one.started_at desc, one.run_id desc limit $4 + 1)
             $query$), (2, 'pgflowd.runs', $query$
             (select one.run_id, one.created_at as at, one.labels, one.title,
                     pgflowd._run_status(null, one.cancelled_at is not null, null, null,
                                         one.state = 'planned', one.expired_at is not null,
                                         pgflowd._is_blocked(one)) as status
                from @runs as one
               where $6 and @flow and one.state = 'planned'
                 and one.created_at > $7 and one.created_at <= least($8, $9)
                 and (one.created_at < $9 or one.run_id < $10)
               order by one.created_at desc, one.run_id desc limit $4 + 1)
             $query$), (2, 'pgflowd.runs', $query$
             (select one.run_id, one.created_at as at, one.labels, one.title,
                     case when one.expired_at is not null then 'expired' else 'cancelled' end as status
                from @runs as one
               where $6 and @flow and one.state = 'ended'
                 and one.created_at > $7 and one.created_at <= least($8, $9)
                 and (one.created_at < $9 or one.run_id < $10)
               order by one.created_at desc, one.run_id desc limit $4 + 1)
             $query$)) as scan (place, runs, query)
     cross join generate_series(1, coalesce(cardinality(flows), 1)) as nr
     group by scan.place order by scan.place);
  return query execute replace(replace($query$
    with begun as materialized (
      select judged.*
        from (values (null::text, false)) as missing (error_message, is_paused)
       cross join lateral (
         select run.run_id, run.at, run.nr, run.has_next, coalesce(
                  ($11 or ours.undo_of is null)
                  and ($3 is null or pgflowd._run_status(
                         run.status, ours.cancelled_at is not null, open.tasks, waiting.tasks,
                         false, ours.expired_at is not null, is_paused => run.is_paused,
                         is_quarantined => waiting.has_quarantined,
                         undo_state => ours.undo_state) = any ($3))
                  and ($12 is null or ours.labels @> $12)
                  and ($13 is null
                       or pgflowd._is_sought(run.run_id, failed.error_message, ours.labels, ours.title,
                                             $13))
                  and ($15 is null or exists (
                         select from pgflow.runs as begun
                          where begun.run_id = run.run_id and begun.input @> $15)),
                  false) as fits
           from (select one.*, row_number() over newest as nr,
                        lead(one.run_id) over newest is not null as has_next
                   from (select * from (@begun) as each
                          order by at desc, run_id desc limit $4 + 1) as one
                 window newest as (order by one.at desc, one.run_id desc)) as run
           left join lateral (
             select one.cancelled_at, one.expired_at, one.undo_state, one.undo_of, one.labels, one.title
               from pgflowd.runs as one where one.run_id = run.run_id offset 0) as ours on true
          cross join lateral (
             select count(*) as tasks, bool_or(wait.kind = 'quarantined') as has_quarantined
               from pgflowd.waits as wait
              where wait.run_id = run.run_id and run.status = 'started') as waiting
          cross join lateral (
             select sum(state.remaining_tasks) as tasks from pgflow.step_states as state
              where state.run_id = run.run_id and state.status = 'started'
                and waiting.tasks > 0) as open
          cross join lateral (
             select case when run.status = 'failed' and $13 is not null then coalesce(
                      run.error_message,
                      (select min(state.error_message) from pgflow.step_states as state
                        where state.run_id = run.run_id and state.status = 'failed'))
                    end as error_message offset 0) as failed
          where run.nr <= $4
            and (run.nr = $4 or not run.has_next or $3 is null or run.status = any (array(
                  select unnest(case
                           when given.status in ('waiting', 'paused', 'quarantined') then '{started}'
                           when given.status in ('cancelled', 'expired') then '{failed}'
                           when given.status like 'und%' then '{completed,failed}'
                           else array[given.status] end)
                    from unnest($3) as given (status))))) as judged
       where judged.fits or judged.nr = $4 or not judged.has_next
       order by judged.at desc, judged.run_id desc
       limit $14 + 2
    ), unbegun as materialized (
      select judged.*
        from (select run.run_id, run.at, run.nr, run.has_next, coalesce(
                       ($3 is null or run.status = any ($3))
                       and ($12 is null or run.labels @> $12)
                       and ($13 is null
                            or pgflowd._is_sought(run.run_id, null, run.labels, run.title, $13))
                       and ($15 is null or exists (
                              select from pgflowd.runs as planned
                               where planned.run_id = run.run_id and planned.input @> $15)),
                       false) as fits
                from (select one.*, row_number() over newest as nr,
                             lead(one.run_id) over newest is not null as has_next
                        from (select * from (@unbegun) as each
                               order by at desc, run_id desc limit $4 + 1) as one
                      window newest as (order by one.at desc, one.run_id desc)) as run) as judged
       where judged.nr <= $4 and (judged.fits or judged.nr = $4 or not judged.has_next)
       order by judged.at desc, judged.run_id desc
       limit $14 + 2
    ), met as (
      select one.*, count(*) filter (where one.fits)
                      over (partition by one.place order by one.at desc, one.run_id desc) as fitting
        from (select begun.*, 1 as place from begun union all select unbegun.*, 2 from unbegun) as one
    ), behind as (  -- the newest run of which what is behind may not have been met
      select one.at, one.run_id from met as one
       where one.fits and one.fitting > $14 or one.nr = $4 and one.has_next
       order by one.at desc, one.run_id desc limit 1
    ), shown as (
      select one.run_id, one.at,
             coalesce((one.at, one.run_id) < (select behind.at, behind.run_id from behind), false)
               as is_behind,
             row_number() over (order by one.at desc, one.run_id desc) as nr
        from met as one where one.fits
    ), ends as (
      select one.at, one.run_id, 1 as choice from shown as one
       where one.nr = $14 and exists (select from shown as next where next.nr > $14)
         and not one.is_behind
       union all
      select behind.at, behind.run_id, 2 from behind
       order by choice limit 1
    )
    select shown.run_id, shown.at, shown.is_behind, looked.seen, ends.at, ends.run_id
      from (select coalesce(sum(one.nr), 0)::bigint as seen
              from (select max(met.nr) as nr from met group by met.place) as one) as looked
      left join ends on true
      left join shown on shown.nr <= $14
     order by shown.nr
    $query$, '@begun', scans[1]), '@unbegun', scans[2])
    using flows, ids, _found_runs.statuses, _found_runs.max_seen,
          coalesce(not _found_runs.statuses <@ '{scheduled,blocked}', true),
          coalesce(_found_runs.statuses && '{scheduled,blocked,cancelled,expired}', true),
          coalesce(_found_runs.since, '-infinity'), coalesce(_found_runs.until, 'infinity'),
          coalesce(_found_runs.after_at, 'infinity'),
          coalesce(_found_runs.after_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'),
          _found_runs.with_undos or _found_runs.of_flow is not null, _found_runs.with_labels, sought,
          _found_runs.max_runs, _found_runs.with_input;
end $$;
