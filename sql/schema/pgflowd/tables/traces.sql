-- traces: how far the attempts of the history were exported as spans; one row, once a daemon has
-- traces. Who exports holds its lock. All up to `token` are done, but for those in `open`, which had
-- not ended. `up_to` is the newest one when `writers` were listed: the transactions that may still add
-- one before it; none is read beyond `token` until they have ended. `seen_at`: when somebody looked, to
-- the minute; if that is a day ago there are no traces, and nothing is kept for them.
create table if not exists pgflowd.traces (
  is_one boolean not null default true,
  token bigint not null,
  open bigint[] not null default '{}',
  up_to bigint not null,
  writers text[] not null default '{}',
  seen_at timestamptz not null default now(),
  constraint traces_pkey primary key (is_one),
  constraint there_is_one_cursor check (is_one)
);
