-- signal(run_id, name, payload, actor, dedup): tells a run something; returns the id of the signal. The
-- sweep gives it to the first task of the run that waits for this name, now or later (process_due). It
-- only inserts: a transaction that has signalled holds up no report, however long it stays open.
-- Given once more with the same `dedup` it returns the first one's id, also when the run has ended.
-- PF002 for an unknown run, PF003 for one that has ended, both as the caller's snapshot shows them;
-- PF021 for a payload of more than `checkpoint_max` bytes, 22023 for a bad name.
-- Security definer, so that a role which may touch no table can signal what it started; whoever has no
-- role of roles.sql needs a grant.
-- Called by: answer; clients, commands; applications.
-- Locks: the new row; it waits for a transaction that gives the same signal by `dedup`.
create or replace function pgflowd.signal(
  run_id uuid, name text, payload jsonb default 'null', actor text default null,
  dedup text default null)
returns bigint language plpgsql security definer set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  max_bytes constant int := pgflowd.setting('checkpoint_max')::int;
  status text;
  id bigint;
begin
  if (length(signal.name) between 1 and 200) is not true
     or (length(signal.dedup) between 1 and 200) is false then
    raise exception 'a signal cannot have the name % and the dedup %',
      coalesce(quote_literal(left(signal.name, 210)), 'null'),
      coalesce(quote_literal(left(signal.dedup, 210)), 'null')
      using errcode = '22023', hint = 'use 1 to 200 characters for each';
  end if;
  select one.signal_id into id from pgflowd.signals as one
   where one.run_id = signal.run_id and one.name = signal.name and one.dedup = signal.dedup;
  if found then
    return id;
  elsif pg_column_size(signal.payload) > max_bytes then
    raise exception 'the payload of signal % has % bytes, and % are allowed', signal.name,
      pg_column_size(signal.payload), max_bytes using errcode = 'PF021',
      hint = 'send a reference to the data, or raise checkpoint_max';
  end if;
  select run.status into status from pgflow.runs as run where run.run_id = signal.run_id;
  if not found then
    select run.status into status from pgflowd.run_status as run where run.run_id = signal.run_id;
  end if;
  if not found then
    raise exception 'there is no run %', signal.run_id using errcode = 'PF002';
  elsif status in ('completed', 'failed', 'cancelled', 'expired') then
    raise exception 'run % has ended already: it is %', signal.run_id, status
      using errcode = 'PF003';
  end if;

  insert into pgflowd.signals (run_id, name, payload, dedup, sent_by)
  values (signal.run_id, signal.name, coalesce(signal.payload, 'null'), signal.dedup, signal.actor)
  on conflict (run_id, name, dedup) where dedup is not null do nothing
  returning signal_id into id;
  if not found then
    return (select one.signal_id from pgflowd.signals as one
             where one.run_id = signal.run_id and one.name = signal.name
               and one.dedup = signal.dedup);
  end if;
  perform pgflowd._notify_due(clock_timestamp());
  return id;
end $$;
revoke execute on function pgflowd.signal(uuid, text, jsonb, text, text) from public;
