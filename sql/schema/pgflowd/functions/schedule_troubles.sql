-- schedule_troubles(max_rows): the schedules whose last tick started no run, and why, and those that are
-- due for more than a minute. One that ticked in what is the future, since the clock was put back, is
-- due at once. Security definer, since a worker's role may change no schedule.
-- Called by: the sweeper; `pgflowd doctor`.   Locks: the schedules that it makes due, skipping locked
-- ones.
create or replace function pgflowd.schedule_troubles(max_rows int default 20)
returns table (name text, error text)
language plpgsql security definer set search_path = '', pg_temp as $$
#variable_conflict use_column
begin
  update pgflowd.schedules as schedule set due_at = now(), ticks_from = now(), ticked_at = null
   where schedule.name = any (array(
     select one.name from pgflowd.schedules as one
      where one.ticked_at > now() + interval '1 minute' and one.due_at is not null
      order by one.name for update skip locked));
  return query
    select known.name, known.error from pgflowd.schedules as known
     where known.error is not null order by known.name limit schedule_troubles.max_rows;
  return query
    select late.name,
           format('it was due %s s ago', floor(extract(epoch from now() - late.due_at)))
      from pgflowd.schedules as late
     where late.due_at < now() - interval '1 minute' and late.error is null
     order by late.due_at limit schedule_troubles.max_rows;
end $$;
