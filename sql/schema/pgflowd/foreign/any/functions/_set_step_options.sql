-- _set_step_options(flow_slug, shape): refuses what only our own core can do.
-- Called by: _define.   Locks: nothing.
create or replace function pgflowd._set_step_options(flow_slug text, shape jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  step text;
begin
  select one.value ->> 'slug' into step
    from jsonb_array_elements(_set_step_options.shape -> 'steps') as one
   where jsonb_typeof(one.value #> '{options,needs}') = 'array'
      or jsonb_typeof(one.value #> '{options,limit}') = 'object' limit 1;
  if found then
    raise exception 'step % of flow % has needs or a limit, and schema pgflow of this database knows neither',
                    step, _set_step_options.flow_slug using errcode = 'PF035',
      hint = 'use a database with the core of pgflowd';
  end if;
end $$;
