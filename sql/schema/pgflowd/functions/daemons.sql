-- daemons(max_rows): returns the daemons of all machines, those that were heard last if there are more:
-- the state that each has told last, with its status document, whether it is silent since, and how long
-- ago its heartbeat was, by the database's clock. Nothing is longer than _told_status lets it be. Of one that is silent or ends: how many of its workers
-- live, how many tasks they hold, and in how many seconds the last of their leases lapses. One that has
-- ended as it was asked to is not among them.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.daemons(max_rows int default 200)
returns table (daemon_id uuid, name text, host text, pid int, version text, started_at timestamptz,
               heartbeat_at timestamptz, age_s float8, state text, is_silent boolean, living bigint,
               tasks bigint, lapses_in_s float8, status jsonb)
language sql stable set search_path = '', pg_temp as $$
  select one.daemon_id, left(one.name, 200), left(one.host, 200), one.pid, left(one.version, 200),
         greatest(least(one.started_at, now()), 'epoch'), one.heard_at,
         extract(epoch from now() - one.heard_at)::float8, left(one.state, 40),
         one.is_silent and not one.is_ending, work.living, work.tasks, work.lapses_in_s,
         pgflowd._told_status(one.status)
    from (select known.*, known.alive_until < now() as is_silent,
                 greatest(least(known.heartbeat_at, now()), 'epoch') as heard_at,
                 known.state in ('draining', 'stopping') as is_ending
            from pgflowd.daemons as known
           order by known.heartbeat_at desc limit daemons.max_rows) as one
    left join lateral pgflowd._daemon_work(one.status) as work on one.is_silent or one.is_ending
   where not one.is_ending or work.living > 0
   order by one.name, one.host, one.started_at, one.daemon_id;
$$;
