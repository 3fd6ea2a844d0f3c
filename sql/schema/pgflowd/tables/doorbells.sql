-- doorbells: the queues on whose next message somebody sleeps. A queue without a row here notifies
-- nobody. `owner`: the worker that sleeps, or what stands in for one.
-- Unlogged: to arm waits for no disk and for no standby. A crash or a failover empties the table; it
-- also cuts the connections of those who sleep, and they arm again.
create unlogged table if not exists pgflowd.doorbells (
  queue text not null,
  owner uuid not null,
  armed_at timestamptz not null default now(),
  constraint doorbells_pkey primary key (queue, owner)
);
