-- resume_flow(flow_slug, reason, actor): tasks of a paused flow, and of all its versions, may begin
-- again; returns `resumed`, or `repeated` when it is not paused. Those that wait for places of limits
-- get them by the next sweep (refill_limits). PF002 for an unknown flow. Security definer, since a
-- worker's role may change no flow.
-- Called by: clients, commands, operators.   Locks: its row in paused_flows.
create or replace function pgflowd.resume_flow(
  flow_slug text, reason text default null, actor text default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  queues text[];
begin
  perform pgflowd._require_flow(resume_flow.flow_slug);
  with gone as (
    delete from pgflowd.paused_flows as paused
     where paused.flow_slug = any (pgflowd.flows_of(resume_flow.flow_slug)) returning paused.queue_name)
  select array_agg(gone.queue_name) into queues from gone;
  if queues is null then
    return 'repeated';
  end if;
  perform pgflowd._wake(queue) from unnest(queues) as queue;
  perform pgflowd._record_action('resume_flow', resume_flow.actor,
                                 flow_slug => resume_flow.flow_slug, reason => resume_flow.reason);
  return 'resumed';
end $$;
