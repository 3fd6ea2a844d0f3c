-- runs_by_id(run_ids): returns these runs as list_runs has them, in this order, at most 2,000. One that
-- does not exist is left out.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.runs_by_id(run_ids uuid[])
returns table (run_id uuid, flow_slug text, status text, started_at timestamptz,
               ended_at timestamptz, steps int, steps_done int, error_message text,
               start_at timestamptz, labels jsonb, share float8, undo_of uuid, title text)
language sql stable set search_path = '', pg_temp as $$
  select one.run_id, one.flow_slug, one.status, one.started_at, one.ended_at, one.steps,
         one.steps_done, one.error_message, one.start_at, one.labels, one.share, one.undo_of,
         one.title
    from pgflowd._listed_runs(runs_by_id.run_ids[1:2000]) as one;
$$;
