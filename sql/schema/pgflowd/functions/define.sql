-- define(flow_slug, shape, may_lose_data, actor, take_code): makes the flow in the database that of the
-- code, as pgflow.ensure_flow_compiled, whose answer it returns; and its options follow the code, but
-- for those that somebody has tuned in the database (compare_options), unless `take_code`. The answer
-- has `options`, too: what was changed, as `step`, `option`, `before` and `after`. Its schedules follow,
-- too; those of a version are its name's. A flow of another shape stays as it is, but for a definition
-- that may lose data: then it is made anew, and keeps its schedules. What it has made or changed is kept
-- as an action, also when a worker calls it as it starts.
-- Called by: workers, commands.   Locks: the flow's definition.
create or replace function pgflowd.define(
  flow_slug text, shape jsonb, may_lose_data boolean default false, actor text default null,
  take_code boolean default false)
returns jsonb language plpgsql set search_path = '', pg_temp as $$
declare
  answer constant jsonb := pgflowd._define(define.flow_slug, define.shape, define.may_lose_data,
                                           define.take_code);
  changed constant jsonb := nullif(answer -> 'options', '[]');
begin
  if answer ->> 'status' in ('compiled', 'recompiled') or changed is not null then
    perform pgflowd._record_action(
      'define', define.actor, flow_slug => define.flow_slug,
      data => jsonb_strip_nulls(jsonb_build_object('status', answer -> 'status', 'options', changed)));
  end if;
  return answer;
end $$;
