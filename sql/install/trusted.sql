-- Records the roles that are trusted, beside superusers, to own what is called of the platform
-- (schemas realtime, cron, vault, net): the one that migrates, the owners of our schemas, and the
-- platform's admin. Whoever else may create a schema of such a name is not believed.
insert into pgflowd.settings as kept (name, value, changed_by)
select 'trusted_roles', jsonb_agg(role.rolname order by role.rolname), current_user
  from pg_catalog.pg_roles as role
 where role.rolname = current_user
    or role.oid in (select nspowner from pg_catalog.pg_namespace
                     where nspname in ('pgflow', 'pgflowd'))
    or role.rolname = 'supabase_realtime_admin'
       and exists (select from pg_catalog.pg_roles as admin
                    where admin.rolname = 'supabase_admin' and admin.rolsuper)
on conflict on constraint settings_pkey do update
   set value = excluded.value, changed_by = excluded.changed_by, changed_at = now()
 where kept.value <> excluded.value;

-- The secret in the names of the channels for what handlers print (output_channel).
insert into pgflowd.settings (name, value, changed_by)
values ('output_secret', to_jsonb(gen_random_uuid()::text || gen_random_uuid()), current_user)
on conflict on constraint settings_pkey do nothing;

-- Functions that another program had replaced are ours again (tell_core).
delete from pgflowd.settings where name = 'replaced_functions';
