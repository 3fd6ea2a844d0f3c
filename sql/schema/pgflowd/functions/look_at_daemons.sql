-- look_at_daemons(): somebody looks at the daemons: for a minute their rows are written every two
-- seconds. Only a hint: where it is not heard the rows are as old as the interval of the sweeper.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.look_at_daemons()
returns void language sql set search_path = '', pg_temp as $$
  select pg_notify('pgflowd', 'look at daemons');
$$;
