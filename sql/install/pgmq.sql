-- pgmq: the queues under pgflow, version 1.5 or later.
-- A pgmq that is there already is only checked. Otherwise the server's extension is created. Where
-- the server has none, or denies it, the SQL of the Python package `pgmq` is executed;
-- pgflowd/db/schema/migrate.py puts it between the inner quotes. What is installed so looks nowhere
-- before pg_catalog, as our own functions; an extension is left as it is.
do $pgflowd$
declare
  offered text;
  shipped text := $pgmq$<shipped>$pgmq$;
  present text := (select extversion from pg_catalog.pg_extension where extname = 'pgmq');
  missing text;
  nameless record;
  pathless text;
begin
  if pg_catalog.to_regclass('pgmq.meta') is null then
    select candidate.version into offered
      from pg_catalog.pg_available_extension_versions as candidate
     where candidate.name = 'pgmq'
       and candidate.version ~ '^\d+(\.\d+)*$'
       and pg_catalog.string_to_array(candidate.version, '.')::int[] >= '{1,5}'
     order by pg_catalog.string_to_array(candidate.version, '.')::int[] desc
     limit 1;
    if offered is not null then
      begin
        execute pg_catalog.format('create extension pgmq version %L', offered);
      exception when insufficient_privilege then
        offered := null;
      end;
    end if;
    if offered is null and shipped <> '' then
      execute shipped;
      execute 'comment on schema pgmq is ''pgmq <version>, installed as plain SQL by pgflowd''';
    elsif offered is null then
      raise exception 'pgmq is missing: the server offers no extension pgmq 1.5 or later'
        using errcode = 'PF031',
              hint = 'install the package of the extension, or pip install pgmq where you migrate';
    end if;
  end if;

  if present ~ '^\d+(\.\d+)*$' and pg_catalog.string_to_array(present, '.')::int[] < '{1,5}' then
    raise exception 'the extension pgmq is at version %, and pgflow needs 1.5', present
      using errcode = 'PF031', hint = 'alter extension pgmq update';
  end if;

  select pg_catalog.string_agg(needed.name, ', ') into missing
    from pg_catalog.unnest(array[
           'pgmq.create(text)', 'pgmq.drop_queue(text)', 'pgmq.list_queues()',
           'pgmq.send_batch(text, jsonb[], integer)', 'pgmq.archive(text, bigint)',
           'pgmq.archive(text, bigint[])', 'pgmq.set_vt(text, bigint, integer)',
           'pgmq.delete(text, bigint[])', 'pgmq.format_table_name(text, text)',
           'pgmq.send(text, jsonb, jsonb, integer)']) as needed (name)
   where pg_catalog.to_regprocedure(needed.name) is null;
  if missing is not null then
    raise exception 'pgmq is older than 1.5: it has no %', missing
      using errcode = 'PF031', hint = 'alter extension pgmq update, or follow its upgrade notes';
  end if;

  -- Where a publication covers all tables, rows can only be deleted by a replica identity. pgmq's own
  -- tables have no primary key, but a unique one.
  for nameless in
    select class.oid::regclass as name, pg_catalog.quote_ident(key.relname) as key
      from pg_catalog.pg_class as class
      join pg_catalog.pg_index as index
        on index.indrelid = class.oid and index.indisunique and index.indimmediate
       and index.indisvalid and index.indpred is null and index.indexprs is null
      join pg_catalog.pg_class as key on key.oid = index.indexrelid
     where class.oid in (pg_catalog.to_regclass('pgmq.meta'),
                         pg_catalog.to_regclass('pgmq.topic_bindings'))
       and class.relreplident = 'd' and pg_catalog.pg_has_role(class.relowner, 'usage')
       and pg_catalog.obj_description(class.relnamespace, 'pg_namespace')
           like 'pgmq %, installed as plain SQL by pgflowd'
       and not exists (select from pg_catalog.pg_index as other
                        where other.indrelid = class.oid and other.indisprimary)
  loop
    execute pg_catalog.format('alter table %s replica identity using index %s',
                              nameless.name, nameless.key);
  end loop;

  for pathless in
    select pg_catalog.format('alter routine %s set search_path = %L, pg_temp', proc.oid::regprocedure, '')
      from pg_catalog.pg_proc as proc
      join pg_catalog.pg_namespace as namespace on namespace.oid = proc.pronamespace
     where namespace.nspname = 'pgmq' and proc.prokind in ('f', 'p')
       and pg_catalog.obj_description(namespace.oid, 'pg_namespace')
           like 'pgmq %, installed as plain SQL by pgflowd'
       and pg_catalog.pg_has_role(proc.proowner, 'usage')
       and 'search_path="", pg_temp' <> all (coalesce(proc.proconfig, '{}'))
  loop
    execute pathless;
  end loop;
end
$pgflowd$;
