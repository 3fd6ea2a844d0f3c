-- create_flow(flow_slug, max_attempts, base_delay, timeout): creates a flow unless it exists,
-- with its queue and the trigger that wakes workers, and returns it. An existing flow keeps its
-- options.
-- Called by: _create_flow_from_shape; workers of other runtimes, applications.
-- Locks: the flow's definition (pgflowd._lock_definition).
create or replace function pgflow.create_flow(
  flow_slug text, max_attempts int default null, base_delay int default null,
  timeout int default null)
returns pgflow.flows language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  queue constant text := pgflow._queue_name(create_flow.flow_slug);
  flow pgflow.flows;
begin
  perform pgflowd._lock_definition(create_flow.flow_slug);
  select * into flow from pgflow.flows as known where lower(known.flow_slug collate "C") = queue;
  if flow.flow_slug <> create_flow.flow_slug then
    raise unique_violation using
      message = format('flow %s exists already, and %s differs from it in case only',
                       flow.flow_slug, create_flow.flow_slug),
      hint = 'Both would share one queue; choose another slug.';
  end if;

  if flow.flow_slug is null then
    insert into pgflow.flows as made (flow_slug, opt_max_attempts, opt_base_delay, opt_timeout)
    values (create_flow.flow_slug, coalesce(create_flow.max_attempts, 3),
            coalesce(create_flow.base_delay, 5), coalesce(create_flow.timeout, 60))
    returning made.* into flow;
  end if;
  perform pgflow._create_queue(create_flow.flow_slug);
  return flow;
end $$;
