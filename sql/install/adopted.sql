-- After an adoption: gives the rights on functions back that roles had by name on those of another program
-- (adopt.sql), and sets what its release has otherwise than we.
do $$
declare
  one record;
begin
  for one in
    select proc.oid::regprocedure as signature, given.role
      from jsonb_to_recordset(current_setting('pgflowd.granted')::jsonb) as given (name text, role text)
      join pg_catalog.pg_proc as proc
        on proc.pronamespace = to_regnamespace('pgflow') and proc.proname = given.name
  loop
    execute format('grant execute on routine %s to %s', one.signature, one.role);
  end loop;
end
$$;

insert into pgflowd.settings as kept (name, value, changed_by)
select one.key, one.value, current_user
  from jsonb_each(nullif(current_setting('pgflowd.adopted_settings', true), '')::jsonb) as one
on conflict on constraint settings_pkey do nothing;
