-- _set_step_options(flow_slug, shape): what the steps need is what this shape says, and so are their
-- limits, but for the number of places of one that exists, which may be tuned in the database.
-- Tasks that wait for what their step asked for before are freed by the sweep, and meet the gate again.
-- Called by: _define.   Locks: what it changes; the caller has the flow's definition.
create or replace function pgflowd._set_step_options(flow_slug text, shape jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  name_of_flow constant text := pgflowd._name_of(_set_step_options.flow_slug);  -- versions share limits
  step record;
  has_changed boolean := false;
begin
  for step in
    select asked.*, asked.needs is distinct from option.needs as has_other_needs,
           (asked.limit_name, asked.limit_path) is distinct from (option.limit_name, option.limit_path)
             as has_other_limit
      from (select given.slug, given.needs as given_needs,
                   string_to_array(pgflowd._joined_needs(given.needs), ',') as needs,
                   (given.bound ->> 'slots')::int as limit_slots,
                   case when given.bound is not null
                        then coalesce(given.bound ->> 'name',
                                      concat(name_of_flow, '/', given.slug)) end
                     as limit_name,
                   case when given.bound ? 'path'
                        then array(select jsonb_array_elements_text(given.bound -> 'path')) end
                     as limit_path
              from (select one.value ->> 'slug' as slug,
                           nullif(one.value #> '{options,needs}', 'null') as needs,
                           nullif(one.value #> '{options,limit}', 'null') as bound
                      from jsonb_array_elements(_set_step_options.shape -> 'steps') as one) as given
           ) as asked
      left join pgflowd.step_options as option
        on option.flow_slug = _set_step_options.flow_slug and option.step_slug = asked.slug
     where asked.needs is distinct from option.needs
        or asked.given_needs is not null and asked.needs is null
        or (asked.limit_name, asked.limit_path) is distinct from (option.limit_name, option.limit_path)
  loop
    if step.given_needs is not null and step.needs is null then
      raise exception 'step % of flow % has needs that are none', step.slug,
                      _set_step_options.flow_slug using errcode = '22023',
        hint = 'needs are 1 to 32 texts of 1 to 64 ASCII characters, without blanks and commas';
    end if;
    insert into pgflowd.step_options as known (flow_slug, step_slug, needs, limit_slots, limit_name,
                                               limit_path)
    values (_set_step_options.flow_slug, step.slug, step.needs, step.limit_slots, step.limit_name,
            step.limit_path)
    on conflict on constraint step_options_pkey do update
       set needs = excluded.needs, limit_name = excluded.limit_name,
           limit_path = excluded.limit_path,
           limit_slots = case when excluded.limit_name is not null
                              then coalesce(known.limit_slots, excluded.limit_slots) end;
    update pgflowd.waits as wait set due_at = now()
     where wait.flow_slug = _set_step_options.flow_slug and wait.step_slug = step.slug
       and (wait.kind = 'need' and step.has_other_needs
            or wait.kind = 'limit' and step.has_other_limit);
    update pgflow.steps as known set is_gated = step.needs is not null or step.limit_name is not null
     where known.flow_slug = _set_step_options.flow_slug and known.step_slug = step.slug;
    has_changed := true;
  end loop;
  if has_changed then
    perform pgflowd._notify_due(now());
    update pgflow.flows as flow
       set is_gated = exists (select from pgflow.steps as known
                               where known.flow_slug = flow.flow_slug and known.is_gated)
     where flow.flow_slug = _set_step_options.flow_slug;
  end if;
end $$;
