-- The migrations of this database: name and checksum.
select migration.name, migration.checksum
  from pgflowd.schema_history as migration
 where migration.name <> 'functions'
