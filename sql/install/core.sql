-- One row: whose schema pgflow is. `none`: absent or still empty; `own`: it has our mark; `upstream`: it
-- has no mark, so another program has made it.
select case
         when namespace.oid is null
           or not exists (select from pg_catalog.pg_class as class where class.relnamespace = namespace.oid)
              and not exists (select from pg_catalog.pg_proc as proc where proc.pronamespace = namespace.oid)
           then 'none'
         when pg_catalog.obj_description(namespace.oid, 'pg_namespace') like 'pgflowd:%' then 'own'
         else 'upstream'
       end as core
  from (values ('pgflow')) as wanted (name)
  left join pg_catalog.pg_namespace as namespace on namespace.nspname = wanted.name
