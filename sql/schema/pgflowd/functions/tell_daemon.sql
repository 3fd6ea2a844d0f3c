-- tell_daemon(status): writes the row of a daemon, from its status document, and deletes rows of others
-- that say nothing any more: without a heartbeat for a day; of a daemon that has ended as it was asked
-- to; and of a silent one that another one of its name and host has followed, once its tasks are
-- recovered. A row counts as alive for three of the sweeper's intervals, and at least for half a minute.
-- Called by: the sweeper.   Locks: its row; rows of others, skipping locked ones.
create or replace function pgflowd.tell_daemon(status jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  told constant jsonb := tell_daemon.status;
  id constant uuid := (told ->> 'id')::uuid;
  alive_s constant float8 := greatest(
    30, 3 * coalesce((told #>> '{sweeper,interval_s}')::float8, 0));
begin
  insert into pgflowd.daemons as known (daemon_id, name, host, pid, version, started_at, alive_until,
                                        state, status)
  values (id, told ->> 'name', told ->> 'host', (told ->> 'pid')::int, told ->> 'version',
          now() - make_interval(secs => (told ->> 'up_s')::float8),
          now() + make_interval(secs => alive_s), told ->> 'state', told)
      on conflict on constraint daemons_pkey do update
     set heartbeat_at = now(), alive_until = excluded.alive_until, state = excluded.state,
         status = excluded.status;

  delete from pgflowd.daemons as other
   where other.daemon_id in (
     select one.daemon_id from pgflowd.daemons as one
      where one.daemon_id <> id
        and (one.heartbeat_at < now() - interval '1 day'
             or one.alive_until < now()
                and (one.state in ('draining', 'stopping')
                     or one.name = told ->> 'name' and one.host = told ->> 'host')
                and (select work.living + work.tasks
                       from pgflowd._daemon_work(one.status) as work) = 0)
        for update skip locked);
end $$;
