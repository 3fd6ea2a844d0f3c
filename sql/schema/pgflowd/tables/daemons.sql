-- daemons: one row for each start of a daemon, so that people see all machines from anywhere. Its sweeper
-- writes it, by tell_daemon; nothing that concerns a task reads it. `status` is the document that
-- `pgflowd status --json` prints there. `heartbeat_at` is by the database's clock, and so is
-- `alive_until`: who is silent for longer has died, or lost the database, without saying so.
create table if not exists pgflowd.daemons (
  daemon_id uuid not null,
  name text not null,
  host text not null,
  pid int not null,
  version text not null,
  started_at timestamptz not null,
  heartbeat_at timestamptz not null default now(),
  alive_until timestamptz not null,
  state text not null,
  status jsonb not null,
  constraint daemons_pkey primary key (daemon_id)
);
