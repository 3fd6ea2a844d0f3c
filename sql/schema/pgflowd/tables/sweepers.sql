-- sweepers: until when each sweeper sleeps. Whoever makes something due before that notifies it;
-- while nobody sleeps for longer, nobody is notified. A moment that has passed stands for a sweeper
-- that is awake and looks by itself.
-- Unlogged, as doorbells: a crash or a failover empties the table, and cuts the connections of those
-- who sleep; they look as they come back.
create unlogged table if not exists pgflowd.sweepers (
  sweeper_id uuid not null,
  sleeps_until timestamptz not null,
  constraint sweepers_pkey primary key (sweeper_id)
);
