-- _check_wishes(run_id, start_at, expires_at, labels, key, singleton_key, on_conflict, after,
-- after_mode): raises PF009 where they contradict each other, or cannot be.
-- Called by: reschedule, _start.   Locks: nothing.
create or replace function pgflowd._check_wishes(
  run_id uuid, start_at timestamptz, expires_at timestamptz, labels jsonb, key text,
  singleton_key text default null, on_conflict text default 'wait', after uuid[] default null,
  after_mode text default 'completed')
returns void language plpgsql stable set search_path = '', pg_temp as $$
begin
  if start_at >= expires_at then
    raise exception 'the run would expire at %, before it begins at %', expires_at, start_at
      using errcode = 'PF009', hint = 'let it expire later, or begin sooner';
  elsif not isfinite(start_at) or not isfinite(expires_at) then
    raise exception 'a run cannot begin or expire at infinity'
      using errcode = 'PF009', hint = 'leave the time out';
  elsif start_at not between '0001-01-02 UTC' and '9999-12-31 UTC'
        or expires_at not between '0001-01-02 UTC' and '9999-12-31 UTC' then
    raise exception 'a run cannot begin at %, or expire at %: not every program can read such a time', start_at, expires_at
      using errcode = 'PF009', hint = 'use a year from 1 to 9999';
  elsif run_id is not null and key is not null then
    raise exception 'a run cannot have both an id and a key of the caller'
      using errcode = 'PF009', hint = 'leave one of them out: the id is made of the key';
  elsif (length(key) between 1 and 200) is false then
    raise exception 'a key of % characters cannot be', length(key)
      using errcode = 'PF009', hint = 'use 1 to 200 characters';
  elsif (length(singleton_key) between 1 and 200) is false then
    raise exception 'a singleton key of % characters cannot be', length(singleton_key)
      using errcode = 'PF009', hint = 'use 1 to 200 characters';
  elsif on_conflict is null or on_conflict not in ('wait', 'existing', 'reject', 'replace') then
    raise exception 'on_conflict cannot be %', coalesce(left(on_conflict, 100), 'null')
      using errcode = 'PF009', hint = 'it is wait, existing, reject or replace';
  elsif on_conflict <> 'wait' and singleton_key is null then
    raise exception 'on_conflict % needs a singleton key', on_conflict
      using errcode = 'PF009', hint = 'say which key only one run at a time may have';
  elsif jsonb_typeof(labels) <> 'object'
        or exists (select from jsonb_each(labels) as label where jsonb_typeof(label.value) <> 'string') then
    raise exception 'the labels of a run are an object of texts, not %', left(labels::text, 100)
      using errcode = 'PF009', hint = 'write for example {"customer": "42"}';
  elsif array_position(after, null) is not null or after_mode is null
        or after_mode not in ('completed', 'ended') then
    raise exception 'a run cannot begin after %, mode %', after, after_mode
      using errcode = 'PF009', hint = 'name runs; the mode is completed or ended';
  end if;
end $$;
