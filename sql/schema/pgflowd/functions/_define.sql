-- _define(flow_slug, shape, may_lose_data, take_code): see define; it is not kept as an action.
-- Called by: define, deploy_version.   Locks: the flow's definition.
create or replace function pgflowd._define(
  flow_slug text, shape jsonb, may_lose_data boolean default false,
  take_code boolean default false)
returns jsonb language plpgsql set search_path = '', pg_temp as $$
declare
  answer jsonb;
  changes jsonb;
  change jsonb;
  kept pgflowd.schedules[];
  named constant text := pgflowd._name_of(_define.flow_slug);
begin
  perform pgflowd._lock_definition(_define.flow_slug);
  kept := array(select schedule from pgflowd.schedules as schedule
                 where schedule.flow_slug = _define.flow_slug and _define.may_lose_data);
  answer := pgflow.ensure_flow_compiled(_define.flow_slug, _define.shape, _define.may_lose_data);
  if answer ->> 'status' <> 'mismatch' then
    insert into pgflowd.schedules select (unnest(kept)).* on conflict do nothing;
    select coalesce(jsonb_agg(jsonb_build_object('step', one.step_slug, 'option', one.option,
                                                 'before', one.database, 'after', one.code)), '[]')
      into changes
      from pgflowd.compare_options(_define.flow_slug, _define.shape) as one
     where one.code is distinct from one.database and (_define.take_code or not one.is_tuned);
    if (select flow.flow_type <> coalesce(_define.shape ->> 'flowType', 'flow')
          from pgflow.flows as flow where flow.flow_slug = _define.flow_slug) then
      update pgflow.flows as flow set flow_type = coalesce(_define.shape ->> 'flowType', 'flow')
       where flow.flow_slug = _define.flow_slug;
    end if;
    perform pgflowd._set_step_options(_define.flow_slug, _define.shape);
    perform pgflowd._set_undo_options(_define.flow_slug, _define.shape);
    perform pgflowd._set_starts(_define.flow_slug, _define.shape);
    perform pgflowd._set_input_schema(_define.flow_slug, _define.shape);
    if pgflowd.current_flow(named) = _define.flow_slug then
      perform pgflowd._set_schedules(named, _define.shape);
    end if;
    for change in select one.value from jsonb_array_elements(changes) as one loop
      perform pgflowd._write_option(_define.flow_slug, change ->> 'step', change ->> 'option',
                                    change -> 'after');
    end loop;
    perform pgflowd._note_deployed(_define.flow_slug, _define.shape);
    answer := answer || jsonb_build_object('options',
      case when answer ->> 'status' = 'verified' then changes else '[]' end);
  end if;
  return answer;
end $$;
