-- One row: the version of this database, and what the last migrate recorded.
select (select max(migration.version) from pgflowd.schema_history as migration
         where migration.name <> 'functions') as version,
       last.checksum, last.release, last.applied_at, last.applied_by
  from (values (0)) as always
  left join pgflowd.schema_history as last on last.objects is not null
