-- _has_undo(flow_slug): whether a step of this flow has an undo.
-- Called by: _mark_failed, prune_versions, _require_undo; workers, commands.   Locks: nothing.
create or replace function pgflowd._has_undo(flow_slug text)
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
begin
  return exists (select from pgflowd.step_options as option
                  where option.flow_slug = _has_undo.flow_slug and option.undo is not null);
end $$;
