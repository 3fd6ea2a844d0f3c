-- roll_up_minutes(): adds minutes of more than two days ago up to hours, and deletes hours of more than
-- ninety days ago; of each flow at most ten thousand rows. Returns how many minutes are hours now.
-- Called by: the sweeper.   Locks: rows of minutes.
create or replace function pgflowd.roll_up_minutes()
returns bigint language plpgsql set search_path = '', pg_temp as $$
declare
  flow record;
  old record;
  rolled bigint := 0;
begin
  for flow in select one.flow_slug from pgflow.flows as one order by one.flow_slug loop
    for old in
      delete from pgflowd.minutes as gone
       using (select one.at, one.step_slug from pgflowd.minutes as one
               where one.flow_slug = flow.flow_slug and not one.is_hour
                 and one.at < date_trunc('hour', now() - interval '2 days')
               order by one.at, one.step_slug limit 10000 for update skip locked) as due
       where gone.flow_slug = flow.flow_slug and not gone.is_hour and gone.at = due.at
         and gone.step_slug = due.step_slug
      returning gone.*
    loop
      insert into pgflowd.minutes as known
      values (old.flow_slug, true, date_trunc('hour', old.at), old.step_slug, old.completed,
              old.failed, old.timed_out, old.crashed, old.ran, old.waited)
          on conflict on constraint minutes_pkey do update
         set completed = known.completed + excluded.completed,
             failed = known.failed + excluded.failed,
             timed_out = known.timed_out + excluded.timed_out,
             crashed = known.crashed + excluded.crashed,
             ran = pgflowd._added(known.ran, excluded.ran),
             waited = pgflowd._added(known.waited, excluded.waited);
      rolled := rolled + 1;
    end loop;
    delete from pgflowd.minutes as gone
     where gone.flow_slug = flow.flow_slug and gone.is_hour and gone.at < now() - interval '90 days';
  end loop;
  return rolled;
end $$;
