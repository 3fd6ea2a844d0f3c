-- _signal(run_id, name, payload, actor, dedup): tells a run something, see signal; returns the id of the
-- signal, and whether it is new. It only inserts: a transaction that has signalled holds up no report,
-- however long it stays open.
-- Called by: answer, signal.
-- Locks: the new row; it waits for a transaction that gives the same signal by `dedup`.
create or replace function pgflowd._signal(
  run_id uuid, name text, payload jsonb, actor text, dedup text,
  out signal_id bigint, out is_new boolean)
language plpgsql set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  max_bytes constant int := pgflowd.setting('checkpoint_max')::int;
  status text;
begin
  is_new := false;
  if (length(_signal.name) between 1 and 200) is not true
     or (length(_signal.dedup) between 1 and 200) is false then
    raise exception 'a signal cannot have the name % and the dedup %',
      coalesce(quote_literal(left(_signal.name, 210)), 'null'),
      coalesce(quote_literal(left(_signal.dedup, 210)), 'null')
      using errcode = '22023', hint = 'use 1 to 200 characters for each';
  end if;
  select one.signal_id into signal_id from pgflowd.signals as one
   where one.run_id = _signal.run_id and one.name = _signal.name and one.dedup = _signal.dedup;
  if found then
    return;
  elsif pg_column_size(_signal.payload) > max_bytes then
    raise exception 'the payload of signal % has % bytes, and % are allowed', _signal.name,
      pg_column_size(_signal.payload), max_bytes using errcode = 'PF021',
      hint = 'send a reference to the data, or raise checkpoint_max';
  end if;
  select run.status into status from pgflow.runs as run where run.run_id = _signal.run_id;
  if not found then
    select run.status into status from pgflowd.run_status as run where run.run_id = _signal.run_id;
  end if;
  if not found then
    raise exception 'there is no run %', _signal.run_id using errcode = 'PF002';
  elsif status in ('completed', 'failed', 'cancelled', 'expired') then
    raise exception 'run % has ended already: it is %', _signal.run_id, status
      using errcode = 'PF003';
  end if;

  insert into pgflowd.signals (run_id, name, payload, dedup, sent_by)
  values (_signal.run_id, _signal.name, coalesce(_signal.payload, 'null'), _signal.dedup, _signal.actor)
  on conflict (run_id, name, dedup) where dedup is not null do nothing
  returning signals.signal_id into signal_id;
  is_new := found;
  if is_new then
    perform pgflowd._notify_due(clock_timestamp());
  else
    select one.signal_id into signal_id from pgflowd.signals as one
     where one.run_id = _signal.run_id and one.name = _signal.name and one.dedup = _signal.dedup;
  end if;
end $$;
