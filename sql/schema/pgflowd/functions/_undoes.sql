-- _undoes(undo_flow, flow_slug): whether this flow undoes each step of that one that has an undo: by a
-- map where that is one, and after the undos of all that come after it.
-- Called by: _undo_flow.   Locks: nothing.
create or replace function pgflowd._undoes(undo_flow text, flow_slug text)
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
begin
  return not exists (
      select from pgflowd.step_options as option
        join pgflow.steps as step on step.flow_slug = option.flow_slug and step.step_slug = option.step_slug
       where option.flow_slug = _undoes.flow_slug and option.undo is not null
         and not exists (select from pgflow.steps as undo
                          where undo.flow_slug = _undoes.undo_flow
                            and undo.step_slug = 'undo_' || step.step_slug
                            and undo.step_type = step.step_type))
    and not exists (
      select 'undo_' || known.later, 'undo_' || known.earlier
        from pgflowd._order_of_steps(_undoes.flow_slug) as known
        join pgflowd.step_options as one
          on one.flow_slug = _undoes.flow_slug and one.step_slug = known.earlier and one.undo is not null
        join pgflowd.step_options as other
          on other.flow_slug = _undoes.flow_slug and other.step_slug = known.later and other.undo is not null
      except
      select known.earlier, known.later from pgflowd._order_of_steps(_undoes.undo_flow) as known);
end $$;
