-- ensure_flow_compiled(flow_slug, shape, …): compares the flow in the database with the one in
-- the code. Creates a missing flow; recreates a different one where its data may be lost, that
-- is in a local database or with allow_data_loss; else returns `mismatch`, and the worker stops.
-- Two forms, for workers before 0.16 and since; a worker of 0.17 names the queue mode and reads
-- mismatchKind as well. Queues per step are refused: our tasks share their flow's queue.
-- Called by: analyze_and_create_flow, pgflowd._define; workers of other runtimes.   Locks: the flow's definition (pgflowd._lock_definition).
create or replace function pgflow.ensure_flow_compiled(
  flow_slug text, shape jsonb, allow_data_loss boolean)
returns jsonb language plpgsql set search_path = '', pg_temp as $$
declare
  differences text[];
  status text;
begin
  perform pgflowd._lock_definition(ensure_flow_compiled.flow_slug);
  if not pgflow.flow_exists(ensure_flow_compiled.flow_slug) then
    status := 'compiled';
  else
    differences := pgflow._compare_flow_shapes(
      shape, pgflow._get_flow_shape(ensure_flow_compiled.flow_slug));
    status := case when differences = '{}' then 'verified'
                   when allow_data_loss or pgflow.is_local() then 'recompiled'
                   else 'mismatch' end;
  end if;
  if status = 'recompiled' then
    perform pgflow.delete_flow_and_data(ensure_flow_compiled.flow_slug);
  end if;
  if status in ('compiled', 'recompiled') then
    perform pgflow._create_flow_from_shape(ensure_flow_compiled.flow_slug, shape);
  end if;
  return jsonb_build_object('status', status, 'differences', to_jsonb(coalesce(differences, '{}')));
end $$;

create or replace function pgflow.ensure_flow_compiled(
  flow_slug text, shape jsonb, queue_mode text default null, route_map jsonb default null)
returns jsonb language plpgsql set search_path = '', pg_temp as $$
declare
  result jsonb;
begin
  if queue_mode <> 'flow' then
    raise exception 'flow % asks for queue mode %, and only ''flow'' is served here',
                    ensure_flow_compiled.flow_slug, quote_literal(queue_mode)
      using errcode = 'feature_not_supported', hint = 'Compile the flow with one queue per flow.';
  end if;
  result := pgflow.ensure_flow_compiled(ensure_flow_compiled.flow_slug, shape, false);
  if queue_mode is null then
    return result;
  end if;
  return result || jsonb_build_object(
    'mismatchKind', case when result ->> 'status' in ('mismatch', 'recompiled') then 'shape' end);
end $$;
