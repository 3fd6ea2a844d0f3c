-- tell_core(replaced): keeps which functions of schema pgflow are not ours, as a sweeper has found by
-- comparing them with what the last `db migrate` recorded; none: they are as they should be. While there
-- are some, claims refuse with PF030. Security definer, since a worker may not write settings.
-- Called by: the sweeper.   Locks: the setting's row, if that changes.
create or replace function pgflowd.tell_core(replaced text[])
returns void language plpgsql security definer set search_path = '', pg_temp as $$
begin
  if cardinality(tell_core.replaced) = 0 then
    delete from pgflowd.settings as kept where kept.name = 'replaced_functions';
  else
    insert into pgflowd.settings as kept (name, value, changed_by)
    values ('replaced_functions', to_jsonb(tell_core.replaced), session_user)
    on conflict on constraint settings_pkey do update
       set value = excluded.value, changed_at = now() where kept.value <> excluded.value;
  end if;
end $$;
