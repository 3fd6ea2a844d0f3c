-- define(flow_slug, shape, may_lose_data, actor): makes the flow in the database that of the code, as
-- pgflow.ensure_flow_compiled, whose answer it returns; and what its steps need, and its schedules, follow the
-- code. A flow of another shape stays as it is, but for a definition that may lose data: then it is made anew,
-- and keeps its schedules. PF035 if a foreign core lacks what the shape asks for.
-- Called by: workers, commands.   Locks: the flow's definition.
create or replace function pgflowd.define(
  flow_slug text, shape jsonb, may_lose_data boolean default false, actor text default null)
returns jsonb language plpgsql set search_path = '' as $$
declare
  answer jsonb;
  kept pgflowd.schedules[];
begin
  perform pg_advisory_xact_lock(1, hashtext(lower(define.flow_slug collate "C")));
  kept := array(select schedule from pgflowd.schedules as schedule
                 where schedule.flow_slug = define.flow_slug and define.may_lose_data);
  answer := pgflow.ensure_flow_compiled(define.flow_slug, define.shape, define.may_lose_data);
  if answer ->> 'status' <> 'mismatch' then
    insert into pgflowd.schedules select (unnest(kept)).* on conflict do nothing;
    perform pgflowd._set_step_options(define.flow_slug, define.shape);
    perform pgflowd._set_crash_limits(define.flow_slug, define.shape);
    perform pgflowd._set_undo_options(define.flow_slug, define.shape);
    perform pgflowd._set_schedules(define.flow_slug, define.shape);
  end if;
  if answer ->> 'status' in ('compiled', 'recompiled') then
    perform pgflowd._record_action('define', define.actor, flow_slug => define.flow_slug,
                                   data => jsonb_build_object('status', answer -> 'status'));
  end if;
  return answer;
end $$;
