-- The catalog of schemas pgflow and pgflowd: each object and a fingerprint of its definition.
-- Columns are compared by name, since an upgraded table has them in another order. Grants,
-- comments and the objects' ids do not count. The owner of an object counts if it is not that of its
-- schema, and that of a schema if it is neither a superuser nor pgflow_owner.
with schema as (
  select oid, nspname as name, nspowner as owner
    from pg_catalog.pg_namespace where nspname in ('pgflow', 'pgflowd')
), relation as (
  select class.oid, schema.name || '.' || relname as name,
         relkind, relpersistence, relrowsecurity, reloptions,
         nullif(class.relowner, schema.owner)::regrole as owner
    from pg_catalog.pg_class as class join schema on schema.oid = class.relnamespace
), definition (object, text) as (
  select 'schema ' || schema.name, role.rolname::text
    from schema left join pg_catalog.pg_roles as role
      on role.oid = schema.owner and not role.rolsuper and role.rolname <> 'pgflow_owner'
  union all
  select 'table ' || relation.name,
         concat_ws(' ', relation.owner, relkind, relpersistence, relrowsecurity,
                   (select string_agg(option, ' ' order by option) from unnest(reloptions) as option))
    from relation where relkind in ('r', 'p')
  union all
  select 'column ' || relation.name || '.' || attname,
         concat_ws(' ', format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated,
                   attstorage, attcompression, attoptions, pg_get_expr(adbin, adrelid))
    from relation
    join pg_catalog.pg_attribute on attrelid = relation.oid and attnum > 0 and not attisdropped
    left join pg_catalog.pg_attrdef on adrelid = attrelid and adnum = attnum
   where relkind in ('r', 'p')
  union all
  select 'constraint ' || relation.name || '.' || conname, pg_get_constraintdef(con.oid)
    from relation join pg_catalog.pg_constraint as con on con.conrelid = relation.oid
   where contype in ('p', 'u', 'f', 'c', 'x')
  union all
  select 'index ' || relation.name, pg_get_indexdef(relation.oid)
    from relation where relkind in ('i', 'I')
     and not exists (select from pg_catalog.pg_constraint where conindid = relation.oid)
  union all
  select 'trigger ' || relation.name || '.' || tgname, pg_get_triggerdef(pg_trigger.oid)
    from relation join pg_catalog.pg_trigger on tgrelid = relation.oid and not tgisinternal
  union all
  select 'view ' || relation.name,
         concat_ws(' ', relation.owner, reloptions, pg_get_viewdef(relation.oid))
    from relation where relkind in ('v', 'm')
  union all
  select 'type ' || relation.name, concat_ws(' ', relation.owner,
         (select string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' order by attnum)
            from pg_catalog.pg_attribute
           where attrelid = relation.oid and attnum > 0 and not attisdropped))
    from relation where relkind = 'c'
  union all
  select 'type ' || schema.name || '.' || typname,
         concat_ws(' ', nullif(typowner, schema.owner)::regrole, typtype, format_type(typbasetype, typtypmod), typnotnull, typdefault,
                   (select string_agg(enumlabel, ', ' order by enumsortorder)
                      from pg_catalog.pg_enum where enumtypid = pg_type.oid),
                   (select string_agg(pg_get_constraintdef(con.oid), ' ' order by conname)
                      from pg_catalog.pg_constraint as con where contypid = pg_type.oid))
    from schema join pg_catalog.pg_type on typnamespace = schema.oid
   where typtype in ('d', 'e', 'r')
  union all
  select 'function ' || pg_proc.oid::regprocedure,
         concat_ws(' ', nullif(proowner, schema.owner)::regrole, pg_get_functiondef(pg_proc.oid))
    from schema join pg_catalog.pg_proc on pronamespace = schema.oid
   where prokind in ('f', 'p', 'w')
)
select object, left(encode(sha256(convert_to(coalesce(text, ''), 'UTF8')), 'hex'), 32) as fingerprint
  from definition
