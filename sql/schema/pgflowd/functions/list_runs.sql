-- list_runs(flow_slug, statuses, since, max_runs, labels, with_undos): returns the newest runs, of a
-- flow those of all its versions, with how far each one is and why it failed. Null means any flow, any
-- status, any age, any labels. A cancelled run has status `cancelled` here, or `expired`; an open one
-- may be `paused`, or `waiting` if its open tasks all wait, and one that begins later `scheduled`: it
-- counts from when it was asked for. `steps_done` counts completed and skipped steps, `share` how much
-- of the steps is done, as far as it is known. Runs that undo others are left out, unless asked for, or
-- for those of their flow; `undo_of` is what one undoes. With statuses it looks at the newest 100,000
-- runs of that flow and age. search_runs does the same a page at a time, and says how far it looked.
-- Called by: `pgflowd runs list`.   Locks: nothing.
create or replace function pgflowd.list_runs(
  flow_slug text default null, statuses text[] default null, since interval default null,
  max_runs int default 20, labels jsonb default null, with_undos boolean default false)
returns table (run_id uuid, flow_slug text, status text, started_at timestamptz,
               ended_at timestamptz, steps int, steps_done int, error_message text,
               start_at timestamptz, labels jsonb, share float8, undo_of uuid, title text)
language sql stable set search_path = '', pg_temp as $$
  select listed.run_id, listed.flow_slug, listed.status, listed.started_at, listed.ended_at,
         listed.steps, listed.steps_done, listed.error_message, listed.start_at, listed.labels,
         listed.share, listed.undo_of, listed.title
    from pgflowd._listed_runs(array(
           select found.run_id
             from pgflowd._found_runs(
                    list_runs.flow_slug, list_runs.statuses, now() - list_runs.since, null,
                    list_runs.labels, null, list_runs.with_undos, null, null, null, null, list_runs.max_runs,
                    100000) as found
            order by found.at desc, found.run_id desc)) as listed;
$$;
