-- _check_reserved(run_id, key, singleton_key): PF009 for an id and keys that others could compute, so that nobody
-- takes those of a schedule, of an undo, or of a run with a key, before it is there.
-- Called by: reschedule, _start, start, start_child, start_runs, pgflow._start_wished,
-- pgflow.start_flow_with_states.
-- Locks: nothing.
create or replace function pgflowd._check_reserved(run_id uuid, key text, singleton_key text)
returns void language plpgsql stable set search_path = '', pg_temp as $$
begin
  if substr(_check_reserved.run_id::text, 15, 1) = '8' then
    raise exception 'a run cannot be given the id %: those of version 8 are made of keys', _check_reserved.run_id
      using errcode = 'PF009', hint = 'give a key instead, or an id of another version';
  elsif starts_with(key, 'schedule ') or starts_with(singleton_key, 'schedule ') then
    raise exception 'a run cannot have the key %: those that begin with "schedule " belong to schedules',
                    quote_literal(case when starts_with(key, 'schedule ') then key else singleton_key end)
      using errcode = 'PF009', hint = 'choose another key';
  end if;
end $$;
