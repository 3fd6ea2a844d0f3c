-- pause_flow(flow_slug, reason, actor): from now on no task of the flow, or of any version of it,
-- begins; returns `paused`, or `repeated` when it is paused already. What runs ends normally, and runs
-- may be started. No row is moved, so this takes no longer for a million tasks. A claim under way may
-- still begin some. PF002 for an unknown flow. Security definer, since a
-- worker's role may change no flow.
-- Called by: clients, commands, operators.   Locks: the new row.
create or replace function pgflowd.pause_flow(
  flow_slug text, reason text default null, actor text default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
begin
  perform pgflowd._lock_definition(pause_flow.flow_slug);
  perform pgflowd._require_flow(pause_flow.flow_slug);
  insert into pgflowd.paused_flows (flow_slug, paused_by, pause_reason)
  select one, coalesce(nullif(pause_flow.actor, ''), session_user), pause_flow.reason
    from unnest(pgflowd.flows_of(pause_flow.flow_slug)) as one
  on conflict on constraint paused_flows_pkey do nothing;
  if not found then
    return 'repeated';
  end if;
  perform pgflowd._record_action('pause_flow', pause_flow.actor, flow_slug => pause_flow.flow_slug,
                                 reason => pause_flow.reason);
  return 'paused';
end $$;
