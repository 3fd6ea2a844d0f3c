-- _require_undo(run_id, flow_slug): raises PF022 if no step of this run's flow has an undo.
-- Called by: cancel, undo.   Locks: nothing.
create or replace function pgflowd._require_undo(run_id uuid, flow_slug text)
returns void language plpgsql stable set search_path = '', pg_temp as $$
begin
  if not pgflowd._has_undo(_require_undo.flow_slug) then
    raise exception 'run % cannot be undone: no step of flow % has an undo', _require_undo.run_id,
                    _require_undo.flow_slug using errcode = 'PF022';
  end if;
end $$;
