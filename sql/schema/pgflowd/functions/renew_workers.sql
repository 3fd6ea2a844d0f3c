-- renew_workers(worker_ids, after): renews the rows of these workers, except those that were renewed
-- less than `after` ago, and reads the queue of each: how many messages are visible, ten thousand at
-- most, for how long the oldest has been and of which run it is, and in how many seconds the next
-- hidden one becomes visible. A worker whose row is gone comes with nulls. A row that is locked is
-- left to the next call.
-- Called by: the sweeper.   Locks: rows of workers, skipping locked ones.
create or replace function pgflowd.renew_workers(worker_ids uuid[], after interval)
returns table (worker_id uuid, is_deprecated boolean, visible bigint,
               oldest_s double precision, oldest_run text, due_in_s double precision)
language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  renewed record;
  queue regclass;
begin
  return query
    select wanted.id, null::boolean, null::bigint, null::double precision, null::text,
           null::double precision
      from unnest(renew_workers.worker_ids) as wanted (id)
     where not exists (select from pgflow.workers as worker where worker.worker_id = wanted.id);
  for renewed in
    update pgflow.workers as worker set last_heartbeat_at = now()
      from (select known.worker_id from pgflow.workers as known
             where known.worker_id = any (renew_workers.worker_ids)
               and known.last_heartbeat_at <= now() - renew_workers.after
             order by known.worker_id for no key update skip locked) as due
     where worker.worker_id = due.worker_id
    returning worker.worker_id, worker.queue_name, worker.deprecated_at is not null as is_deprecated
  loop
    worker_id := renewed.worker_id;
    is_deprecated := renewed.is_deprecated;
    visible := 0; oldest_s := null; oldest_run := null; due_in_s := null;
    queue := to_regclass(pgflowd._queue_table(renewed.queue_name));
    if queue is not null then
      execute format($query$
        select (select count(*)
                  from (select from %1$s where vt <= now() order by vt limit 10000) as waiting),
               extract(epoch from now() - oldest.vt)::double precision,
               left(oldest.message ->> 'run_id', 36),
               (select extract(epoch from min(hidden.vt) - now())::double precision
                  from %1$s as hidden where hidden.vt > now())
          from (select) as one
          left join (select message.vt, message.message from %1$s as message
                      where message.vt <= now() order by message.vt limit 1) as oldest on true
        $query$, queue)
        into visible, oldest_s, oldest_run, due_in_s;
    end if;
    return next;
  end loop;
end $$;
