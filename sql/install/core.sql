-- One row: which core schema pgflow is, and what an unknown one lacks.
-- `none`: absent or still empty; `own`: has our mark; `0.8` to `0.17`, `elixir`: a foreign core,
-- known by what these releases added; `unknown`: lacks something that all of these have.
with schema as (
  select namespace.oid, pg_catalog.obj_description(namespace.oid, 'pg_namespace') as mark
    from pg_catalog.pg_namespace as namespace
   where namespace.nspname = 'pgflow'
), content as (
  select (select pg_catalog.count(*) from pg_catalog.pg_class as class
           where class.relnamespace = schema.oid)
       + (select pg_catalog.count(*) from pg_catalog.pg_proc as proc
           where proc.pronamespace = schema.oid) as objects
    from schema
), lacking as (
  select pg_catalog.string_agg(needed.name, ', ') as names
    from pg_catalog.unnest(array[
           'pgflow.create_flow(text, integer, integer, integer)',
           'pgflow.start_flow(text, jsonb, uuid)',
           'pgflow.complete_task(uuid, text, integer, jsonb)',
           'pgflow.fail_task(uuid, text, integer, text)']) as needed (name)
   where pg_catalog.to_regprocedure(needed.name) is null
  union all
  select pg_catalog.string_agg(needed.name, ', ')
    from pg_catalog.unnest(array[
           'pgflow.flows', 'pgflow.steps', 'pgflow.deps', 'pgflow.runs', 'pgflow.step_states',
           'pgflow.step_tasks', 'pgflow.workers', 'pgflow.step_task_record']) as needed (name)
   where pg_catalog.to_regclass(needed.name) is null
  union all
  select 'pgflow.start_tasks'
   where not exists (select from pg_catalog.pg_proc as proc, schema
                      where proc.pronamespace = schema.oid and proc.proname = 'start_tasks')
), missing as (
  select pg_catalog.string_agg(lacking.names, ', ') as names from lacking
), has (relation, attribute) as (
  select class.relname, attribute.attname
    from schema
    join pg_catalog.pg_class as class on class.relnamespace = schema.oid
    join pg_catalog.pg_attribute as attribute on attribute.attrelid = class.oid
   where attribute.attnum > 0 and not attribute.attisdropped
), knows_cancelled as (
  select pg_catalog.bool_or(pg_catalog.pg_get_constraintdef(con.oid) like '%''cancelled''%') as it
    from pg_catalog.pg_constraint as con
   where con.conrelid = pg_catalog.to_regclass('pgflow.step_tasks') and con.contype = 'c'
)
select case
         when not exists (select from schema) or (select objects from content) = 0 then 'none'
         when (select mark from schema) like 'pgflowd:%' then 'own'
         when missing.names is not null then 'unknown'
         when exists (select from has where (relation, attribute) = ('step_task_record', 'attempts_count'))
           then 'elixir'
         when exists (select from has where (relation, attribute) = ('steps', 'queue_name'))
           then '0.17'
         when (select it from knows_cancelled) then '0.15'
         when exists (select from has where (relation, attribute) = ('step_tasks', 'requeued_count'))
           then '0.14'
         else '0.8'
       end as core,
       missing.names as missing
  from missing;
