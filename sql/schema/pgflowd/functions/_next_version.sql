-- _next_version(name, shape): the number of the next version of this flow, and its flow: the name with
-- the number, which no other flow has. PF024 if that is longer than a flow's slug may be, or, where
-- steps have undos, that of the flow that undoes its runs.
-- Called by: deploy_version.   Locks: nothing.
create or replace function pgflowd._next_version(
  name text, shape jsonb, out number int, out flow_slug text)
language plpgsql stable set search_path = '', pg_temp as $$
declare
  has_undo constant boolean := _next_version.shape @? '$.steps[*].options.undo ? (@ != null)';
  most constant int := 47 - case when has_undo then length('undo_') else 0 end;
begin
  select max(known.version) into _next_version.number
    from pgflowd.versions as known where known.name = _next_version.name;
  loop
    _next_version.number := _next_version.number + 1;
    _next_version.flow_slug := concat(_next_version.name, '_', _next_version.number);
    exit when not exists (select from pgflow.flows as flow
                           where lower(flow.flow_slug collate "C")
                                 = lower(_next_version.flow_slug collate "C"));
  end loop;
  if length(_next_version.flow_slug) > most then
    raise exception 'the next version of flow % would be %, which has more than % characters',
                    _next_version.name, _next_version.flow_slug, most
      using errcode = 'PF024', hint = 'give the changed flow a shorter slug of its own';
  end if;
end $$;
