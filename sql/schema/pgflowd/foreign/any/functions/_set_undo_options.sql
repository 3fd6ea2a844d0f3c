-- _set_undo_options(flow_slug, shape): refuses undos, which only our own core can do.
-- Called by: _define.   Locks: nothing.
create or replace function pgflowd._set_undo_options(flow_slug text, shape jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  step text;
begin
  select one.value ->> 'slug' into step
    from jsonb_array_elements(_set_undo_options.shape -> 'steps') as one
   where one.value #>> '{options,undo}' is not null
      or (one.value #>> '{options,settle}')::boolean limit 1;
  if found then
    raise exception 'step % of flow % is undone or undoes, and schema pgflow of this database knows no undo',
                    step, _set_undo_options.flow_slug using errcode = 'PF035',
      hint = 'use a database with the core of pgflowd';
  end if;
end $$;
