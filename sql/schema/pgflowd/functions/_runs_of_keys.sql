-- _runs_of_keys(flow_slug, keys): the runs of a flow that were started with these keys; null without keys.
-- PF007 if there is none with one of them.
-- Called by: reschedule, start, start_child.   Locks: nothing.
create or replace function pgflowd._runs_of_keys(flow_slug text, keys text[])
returns uuid[] language plpgsql stable set search_path = '', pg_temp as $$
declare
  unknown text;
begin
  select one.key into unknown from unnest(_runs_of_keys.keys) as one (key)
   cross join lateral (select pgflowd._run_id_of_key(_runs_of_keys.flow_slug, one.key)) as run (id)
   where not exists (select from pgflow.runs as known where known.run_id = run.id)
     and not exists (select from pgflowd.runs as known where known.run_id = run.id) limit 1;
  if found then
    raise exception 'flow % has no run with key %', _runs_of_keys.flow_slug,
                    coalesce(quote_literal(unknown), 'null')
      using errcode = 'PF007',
            hint = 'start that one first; a run of another flow is named by its id';
  end if;
  return (select array_agg(pgflowd._run_id_of_key(_runs_of_keys.flow_slug, one.key))
            from unnest(_runs_of_keys.keys) as one (key));
end $$;
