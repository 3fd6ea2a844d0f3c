-- One row: the server, its pgmq, and whether pgflowd was installed before. The version of a pgmq
-- that is not an extension is in its schema's comment, if pgflowd installed it.
select split_part(current_setting('server_version'), ' ', 1) as server,
       coalesce((select extversion from pg_catalog.pg_extension where extname = 'pgmq'),
                substring(obj_description(namespace.oid, 'pg_namespace') from '^pgmq ([0-9.]+),'),
                case when namespace.oid is not null then 'unknown' end) as pgmq,
       history.it is not null as has_history,
       to_regclass('pgflowd.settings') is not null as has_settings,
       history.it is null and exists (
         select from pg_catalog.pg_class as class
           join pg_catalog.pg_namespace as ours on ours.oid = class.relnamespace
          where ours.nspname = 'pgflowd') as has_strays
  from (select to_regclass('pgflowd.schema_history') as it) as history
  left join pg_catalog.pg_namespace as namespace on namespace.nspname = 'pgmq'
