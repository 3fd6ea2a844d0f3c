-- Schema pgflow: the contract shared with workers of other runtimes.
-- The comment is our mark: a schema pgflow without it was installed by another program, and is
-- never changed. The mark travels with dumps.
create schema if not exists pgflow;
revoke usage on schema pgflow from public;
comment on schema pgflow is
  'pgflowd: the SQL core; change it with pgflowd db migrate only';
