-- schema_history: which migrations made this database, and its catalog afterwards.
-- One row per migration, and one named `functions` for each set of functions applied. The row of the last
-- migrate holds the catalog's fingerprint, object by object, for doctor schema.
-- It lies outside `tables/`, because it must be there before the first migration.
create table if not exists pgflowd.schema_history (
  version int not null,
  name text not null,
  checksum text not null,
  applied_at timestamptz not null default clock_timestamp(),
  applied_by text not null default current_user,
  release text not null,
  server int not null default current_setting('server_version_num')::int,
  objects jsonb,
  constraint schema_history_pkey primary key (version, name, checksum)
);
alter table pgflowd.schema_history drop column if exists core;  -- of before there was one core only
