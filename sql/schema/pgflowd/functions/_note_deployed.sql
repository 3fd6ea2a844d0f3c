-- _note_deployed(flow_slug, shape): keeps what the code says of each option, so that a change in the
-- database is told from one in the code. Rows that would say nothing are not made.
-- Called by: _define.   Locks: what it changes; the caller has the flow's definition.
create or replace function pgflowd._note_deployed(flow_slug text, shape jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  of_flow constant jsonb := pgflowd._tunable_options(_note_deployed.shape -> 'options');
begin
  if of_flow = '{}' then
    delete from pgflowd.flow_options as known
     where known.flow_slug = _note_deployed.flow_slug
       and coalesce(known.on_failure, known.on_cancel, known.input_schema::text) is null;
  else
    insert into pgflowd.flow_options (flow_slug) values (_note_deployed.flow_slug)
    on conflict on constraint flow_options_pkey do nothing;
  end if;
  update pgflowd.flow_options as known set deployed = of_flow
   where known.flow_slug = _note_deployed.flow_slug and known.deployed is distinct from of_flow;
  insert into pgflowd.step_options as known (flow_slug, step_slug, deployed)
  select _note_deployed.flow_slug, step.slug, step.options
    from (select one.value ->> 'slug' as slug,
                 pgflowd._tunable_options(one.value -> 'options') as options
            from jsonb_array_elements(_note_deployed.shape -> 'steps') as one) as step
    left join pgflowd.step_options as kept
      on kept.flow_slug = _note_deployed.flow_slug and kept.step_slug = step.slug
   where step.options is distinct from coalesce(kept.deployed, '{}')
  on conflict on constraint step_options_pkey do update set deployed = excluded.deployed;
end $$;
