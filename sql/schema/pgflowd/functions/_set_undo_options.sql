-- _set_undo_options(flow_slug, shape): which steps have an undo, which settle, and what a failure or
-- cancel of a run means, is what this shape says.
-- Called by: _define.   Locks: what it changes; the caller has the flow's definition.
create or replace function pgflowd._set_undo_options(flow_slug text, shape jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  on_failure constant text := _set_undo_options.shape #>> '{options,onFailure}';
  on_cancel constant text := _set_undo_options.shape #>> '{options,onCancel}';
begin
  insert into pgflowd.step_options as known (flow_slug, step_slug, undo)
  select _set_undo_options.flow_slug, asked.slug, asked.undo
    from (select one.value ->> 'slug' as slug, one.value #>> '{options,undo}' as undo
            from jsonb_array_elements(_set_undo_options.shape -> 'steps') as one) as asked
    left join pgflowd.step_options as option
      on option.flow_slug = _set_undo_options.flow_slug and option.step_slug = asked.slug
   where asked.undo is distinct from option.undo
  on conflict on constraint step_options_pkey do update set undo = excluded.undo;

  update pgflow.steps as step set settles = not step.settles
    from jsonb_array_elements(_set_undo_options.shape -> 'steps') as one
   where step.flow_slug = _set_undo_options.flow_slug and step.step_slug = one.value ->> 'slug'
     and step.settles <> coalesce((one.value #>> '{options,settle}')::boolean, false);

  if coalesce(on_failure, on_cancel) is null then
    update pgflowd.flow_options as known set on_failure = null, on_cancel = null
     where known.flow_slug = _set_undo_options.flow_slug
       and coalesce(known.on_failure, known.on_cancel) is not null;
  else
    insert into pgflowd.flow_options as known (flow_slug, on_failure, on_cancel)
    values (_set_undo_options.flow_slug, on_failure, on_cancel)
    on conflict on constraint flow_options_pkey do update
       set on_failure = excluded.on_failure, on_cancel = excluded.on_cancel
     where (known.on_failure, known.on_cancel)
           is distinct from (excluded.on_failure, excluded.on_cancel);
  end if;
end $$;
