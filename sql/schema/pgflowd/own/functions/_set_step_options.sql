-- _set_step_options(flow_slug, shape): what the steps need is what this shape says. Tasks that wait for a
-- worker which has what their step needed before are freed by the sweep, and meet the gate again.
-- Called by: define.   Locks: what it changes; the caller has the flow's definition.
create or replace function pgflowd._set_step_options(flow_slug text, shape jsonb)
returns void language plpgsql set search_path = '' as $$
declare
  step record;
begin
  for step in
    select given.slug, given.needs is not null as has_needs,
           string_to_array(pgflowd._joined_needs(given.needs), ',') as needs
      from (select one.value ->> 'slug' as slug,
                   nullif(one.value #> '{options,needs}', 'null') as needs
              from jsonb_array_elements(_set_step_options.shape -> 'steps') as one) as given
      left join pgflowd.step_options as option
        on option.flow_slug = _set_step_options.flow_slug and option.step_slug = given.slug
     where option.needs is distinct from string_to_array(pgflowd._joined_needs(given.needs), ',')
        or given.needs is not null and pgflowd._joined_needs(given.needs) is null
  loop
    if step.has_needs and step.needs is null then
      raise exception 'step % of flow % has needs that are none', step.slug,
                      _set_step_options.flow_slug using errcode = '22023',
        hint = 'needs are 1 to 32 texts of 1 to 64 ASCII characters, without blanks and commas';
    end if;
    insert into pgflowd.step_options as known (flow_slug, step_slug, needs)
    values (_set_step_options.flow_slug, step.slug, step.needs)
    on conflict on constraint step_options_pkey do update set needs = excluded.needs;
    update pgflowd.waits as wait set due_at = now()
     where wait.flow_slug = _set_step_options.flow_slug and wait.step_slug = step.slug
       and wait.kind = 'need';
    perform pgflowd._notify_due(now());
    update pgflow.steps as known set is_gated = step.has_needs
     where known.flow_slug = _set_step_options.flow_slug and known.step_slug = step.slug;
    update pgflow.flows as flow
       set is_gated = exists (select from pgflow.steps as known
                               where known.flow_slug = flow.flow_slug and known.is_gated)
     where flow.flow_slug = _set_step_options.flow_slug;
  end loop;
end $$;
