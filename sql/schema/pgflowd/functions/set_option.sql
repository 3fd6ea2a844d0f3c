-- set_option(flow_slug, step_slug, option, value, actor): tunes an option of a flow (step '') or of one
-- of its steps in the database, of all versions of the flow that have it; the code changes it no more
-- until it says the same. null: it is unset, of a flow it has its default. It counts from the next
-- attempt, a limit from the next claim. Options are named as in shapes, and listed by _options; of a
-- limit it is the places of one that the code gives. Returns the value before, of the newest. PF002 for an unknown flow or step, or one without a limit;
-- 22023 for an option or value that cannot be.
-- Called by: `pgflowd flows set`, operators.   Locks: the flow's definition, what it changes; see
-- refill_limits.
create or replace function pgflowd.set_option(
  flow_slug text, step_slug text, option text, value jsonb, actor text default null)
returns jsonb language plpgsql set search_path = '', pg_temp as $$
declare
  one text;
  shape jsonb;
  options jsonb;
  before jsonb;
  is_known boolean := false;
  is_changed boolean := false;
  has_option boolean := false;
begin
  if not pgflowd._is_option(set_option.step_slug <> '', set_option.option, set_option.value) then
    raise exception 'option % of a % cannot be %', set_option.option,
                    case set_option.step_slug when '' then 'flow' else 'step' end,
                    coalesce(set_option.value::text, 'unset')
      using errcode = '22023', hint = 'docs/guides/changing-flows.md lists the options and their values';
  end if;
  perform pgflowd._lock_definition(set_option.flow_slug);
  perform pgflowd._require_flow(set_option.flow_slug);
  foreach one in array pgflowd.flows_of(set_option.flow_slug) loop
    perform pgflowd._lock_definition(one);
    shape := pgflowd.flow_shape(one);
    options := case when set_option.step_slug = '' then shape -> 'options'
      else (select step.value -> 'options' from jsonb_array_elements(shape -> 'steps') as step
             where step.value ->> 'slug' = set_option.step_slug) end;
    is_known := is_known or options is not null;
    if options is not null and (set_option.option <> 'limit' or options ? 'limit') then
      has_option := true;
      before := pgflowd._tunable_options(options) -> set_option.option;
      is_changed := is_changed or before is distinct from nullif(set_option.value, 'null');
      perform pgflowd._write_option(one, set_option.step_slug, set_option.option, set_option.value);
    end if;
  end loop;
  if not is_known then
    raise exception 'there is no step % in flow %', set_option.step_slug, set_option.flow_slug
      using errcode = 'PF002', hint = format('`pgflowd flows show %s` lists its steps', set_option.flow_slug);
  elsif not has_option then
    raise exception 'step % of flow % has no limit', set_option.step_slug, set_option.flow_slug
      using errcode = 'PF002',
            hint = format('`pgflowd flows limits %s` lists those that have one', set_option.flow_slug);
  end if;
  if is_changed then
    perform pgflowd._record_action(
      'set_option', set_option.actor, flow_slug => set_option.flow_slug,
      step_slug => nullif(set_option.step_slug, ''),
      data => jsonb_build_object('option', set_option.option, 'before', before,
                                 'after', set_option.value));
  end if;
  return before;
end $$;
