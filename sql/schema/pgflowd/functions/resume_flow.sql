-- resume_flow(flow_slug, reason, actor): tasks of a paused flow may begin again; returns `resumed`, or `repeated` when
-- it is not paused. Those that wait for places of limits get them by the next sweep (refill_limits).
-- PF002 for an unknown flow.
-- Security definer, since a worker's role may change no flow.
-- Called by: clients, commands, operators.   Locks: its row in paused_flows.
create or replace function pgflowd.resume_flow(
  flow_slug text, reason text default null, actor text default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  queue text;
begin
  perform pgflowd._require_flow(resume_flow.flow_slug);
  delete from pgflowd.paused_flows as paused
   where paused.flow_slug = resume_flow.flow_slug returning paused.queue_name into queue;
  if not found then
    return 'repeated';
  end if;
  perform pgflowd._wake(queue);
  perform pgflowd._record_action('resume_flow', resume_flow.actor,
                                 flow_slug => resume_flow.flow_slug, reason => resume_flow.reason);
  return 'resumed';
end $$;
revoke execute on function pgflowd.resume_flow(text, text, text) from public;
