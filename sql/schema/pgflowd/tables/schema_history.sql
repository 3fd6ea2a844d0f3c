-- schema_history: which migrations made this database, and what it looked like after each.
-- One row per migration and, with name `functions`, one per later reapplication. `core` tells whose schema pgflow
-- stands beside: `own`, or the upstream release it was taken for. `objects` is the catalog's
-- fingerprint, object by object, after the migrate that wrote the row.
create table pgflowd.schema_history (
  id         bigint generated always as identity primary key,
  version    int not null,
  name       text not null,
  checksum   text not null,
  core       text not null,
  applied_at timestamptz not null default pg_catalog.clock_timestamp(),
  applied_by text not null default current_user,
  release    text not null,
  server     int not null default pg_catalog.current_setting('server_version_num')::int,
  objects    jsonb
);
