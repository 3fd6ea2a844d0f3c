-- Records what was applied and the catalog as it is now, so that doctor schema finds what changed
-- since. Objects that others added are left out.
insert into pgflowd.schema_history (version, name, checksum, release)
select step.version, step.name, step.checksum, <release>
  from jsonb_to_recordset(<steps>) as step (version int, name text, checksum text);

update pgflowd.schema_history set objects = null where objects is not null;

-- The document of what was there is large, and parsed once: a `with` that may be merged into the
-- query would be computed for each object.
with before as materialized (
  select it -> 'present' as present, it -> 'known' as known
    from (select current_setting('pgflowd.before')::jsonb) as setting (it)
)
insert into pgflowd.schema_history (version, name, checksum, release, objects)
select <version>, 'functions', <checksum>, <release>,
       jsonb_object_agg(catalog.object, catalog.fingerprint)
  from (<fingerprint>) as catalog cross join before
 where not before.present ? catalog.object
    or before.known ? catalog.object
    or catalog.object in ('schema pgflow', 'schema pgflowd')
on conflict (version, name, checksum) do update
   set release = excluded.release, objects = excluded.objects,
       applied_at = excluded.applied_at, applied_by = excluded.applied_by, server = excluded.server;
