-- search_runs(flow_slug, statuses, since, until, labels, search, with_undos, after_at, after_id, max_runs,
-- max_seen, input, key): returns a page of the runs that fit, newest first, as list_runs has them, of those
-- that began within these times and behind this key. `search` is text in their error, title or labels, or
-- the first or last digits of their id; `input` is contained in theirs, as by @>; `key` is that with which
-- a run of this flow was started; null means any. It examines `max_seen` runs, and as many that have
-- not begun, however few of them fit: `seen` says how many it was, and `end_at` and `end_id` are the key
-- behind which the next page begins, null if this is the last one. They are the same in each row, and in
-- one without a run where none is found.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.search_runs(
  flow_slug text default null, statuses text[] default null, since timestamptz default null,
  until timestamptz default null, labels jsonb default null, search text default null,
  with_undos boolean default false, after_at timestamptz default null, after_id uuid default null,
  max_runs int default 50, max_seen int default 20000, input jsonb default null, key text default null)
returns table (run_id uuid, flow_slug text, status text, started_at timestamptz,
               ended_at timestamptz, steps int, steps_done int, error_message text,
               start_at timestamptz, labels jsonb, share float8, undo_of uuid, title text, seen bigint,
               end_at timestamptz, end_id uuid)
language sql stable set search_path = '', pg_temp as $$
  with found as materialized (
    select * from pgflowd._found_runs(
      search_runs.flow_slug, search_runs.statuses, search_runs.since, search_runs.until,
      search_runs.labels, search_runs.search, search_runs.with_undos, search_runs.input,
      search_runs.key, search_runs.after_at, search_runs.after_id, search_runs.max_runs,
      search_runs.max_seen))
  select listed.run_id, listed.flow_slug, listed.status, listed.started_at, listed.ended_at,
         listed.steps, listed.steps_done, listed.error_message, listed.start_at, listed.labels,
         listed.share, listed.undo_of, listed.title, looked.seen, looked.end_at, looked.end_id
    from (select one.seen, one.end_at, one.end_id from found as one limit 1) as looked
    left join pgflowd._listed_runs(array(
           select one.run_id from found as one where not one.is_behind
            order by one.at desc, one.run_id desc)) as listed on true
   order by listed.nr;
$$;
