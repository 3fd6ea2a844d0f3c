-- _start(…): starts a run as start does, also with an id and keys that no caller may give (_check_reserved).
-- What the flow says of each start (pgflow.flows.starts) holds where this one says nothing: labels one by
-- one, where their path leads to a value, and it expires so long after it begins. PF009 for what is no trace. An empty singleton key means none.
-- Called by: _start_scheduled, pgflow._start_wished, start, start_child.   Locks: see start.
create or replace function pgflowd._start(
  flow_slug text, input jsonb, inout run_id uuid default null,
  start_at timestamptz default null, expires_at timestamptz default null,
  labels jsonb default null, key text default null, singleton_key text default null,
  on_conflict text default 'wait', actor text default null, after uuid[] default null,
  after_mode text default 'completed', traceparent text default null, tracestate text default null,
  out status text)
language plpgsql set search_path = '', pg_temp as $$
declare
  has_to_know constant boolean := _start.on_conflict in ('existing', 'reject');
  is_known boolean;
  waits constant boolean := coalesce(cardinality(_start.after) > 0, false);
  due_at timestamptz;
  holder uuid;
  starts jsonb;
  title text;
begin
  _start.flow_slug := pgflowd.current_flow(_start.flow_slug);
  select flow.starts into starts
    from pgflow.flows as flow where flow.flow_slug = _start.flow_slug;
  if not found then
    raise exception 'there is no flow %', _start.flow_slug using errcode = 'PF002';
  elsif starts is not null then
    title := nullif(left(btrim(regexp_replace(
      pgflowd._fill_template(starts ->> 'title', _start.input), '[\x01-\x1f\x7f-\x9f]+', ' ', 'g')), 120), '');
    _start.labels := nullif(coalesce((
      select jsonb_object_agg(label.key, part.value)
        from jsonb_each_text(starts -> 'labels') as label
       cross join lateral (select pgflowd._input_part(_start.input, label.value) as value) as part
       where part.value is not null), '{}') || coalesce(_start.labels, '{}'), '{}');
    _start.expires_at := coalesce(_start.expires_at, greatest(now(), _start.start_at)
                                  + make_interval(secs => (starts ->> 'expires')::float8));
    if _start.singleton_key is null then
      _start.singleton_key := pgflowd._fill_template(starts ->> 'singleton', _start.input, true);
      perform pgflowd._check_reserved(null, null, _start.singleton_key);
    end if;
  end if;
  _start.singleton_key := nullif(_start.singleton_key, '');
  perform pgflowd._check_wishes(_start.run_id, _start.start_at, _start.expires_at, _start.labels, _start.key,
                                _start.singleton_key, _start.on_conflict, _start.after, _start.after_mode);
  if _start.traceparent !~ '^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$' then  -- as W3C says
    raise exception 'a traceparent cannot be %', quote_literal(left(_start.traceparent, 100))
      using errcode = 'PF009',
            hint = 'write 00, the id of the trace, that of a span and the flags, or leave it out';
  elsif length(_start.tracestate) > 512 or (_start.tracestate is not null and _start.traceparent is null) then
    raise exception 'a tracestate of % characters cannot be', length(_start.tracestate)
      using errcode = 'PF009', hint = 'give at most 512, with a traceparent, or leave it out';
  end if;
  _start.run_id := coalesce(
    _start.run_id, pgflowd._run_id_of_key(pgflowd._name_of(_start.flow_slug), _start.key), gen_random_uuid());
  perform pgflowd._check_input(_start.flow_slug, _start.input);
  _start.status := case when _start.expires_at <= now() then 'expired'
                       when _start.start_at > now() then 'scheduled'
                       when waits then 'blocked' else 'started' end;

  is_known := exists (select from pgflow.runs as run where run.run_id = _start.run_id);
  if not is_known and _start.key is not null then  -- an older run that was deleted
    delete from pgflowd.runs as gone
     where gone.run_id = _start.run_id and gone.state = 'started'
       and not exists (select from pgflow.runs as run where run.run_id = gone.run_id);
  end if;
  is_known := is_known or exists (select from pgflowd.runs as run where run.run_id = _start.run_id);
  if _start.singleton_key is not null and _start.status <> 'expired' and not is_known then
    if not pgflowd._lock_key(_start.singleton_key, has_to_know) then
      _start.status := case _start.status when 'started' then 'blocked' else _start.status end;
    end if;
    holder := pgflowd._key_holder(_start.singleton_key, has_to_know);
    if holder is not null and _start.on_conflict = 'reject' then
      raise exception 'run % has the singleton key %', holder, quote_literal(_start.singleton_key)
        using errcode = 'PF006', detail = holder,
              hint = 'start it when that one has ended, or let it wait in line';
    elsif holder is not null and _start.on_conflict = 'existing' then
      _start.run_id := holder;
      _start.status := 'existing';
      return;
    elsif holder is not null and _start.status = 'started' then
      _start.status := 'blocked';
    end if;
  end if;

  due_at := case when _start.status = 'started' or (waits and _start.status <> 'expired') then _start.expires_at
                 when _start.status = 'scheduled' then least(_start.start_at, _start.expires_at)
                 when _start.status = 'blocked' then now() end;
  if not is_known then
    insert into pgflowd.runs (run_id, flow_slug, state, input, created_by, start_at, expires_at, due_at,
                              labels, expired_at, singleton_key, holds_key, replaces, after_mode,
                              traceparent, tracestate, title)
    select _start.run_id, _start.flow_slug,
           case _start.status when 'expired' then 'ended' when 'started' then 'started'
                             else 'planned' end,
           case when _start.status <> 'started' then _start.input end, _start.actor, _start.start_at,
           _start.expires_at, due_at, _start.labels,
           case when _start.status = 'expired' then now() end, _start.singleton_key,
           _start.singleton_key is not null and _start.status = 'started',
           _start.on_conflict = 'replace', case when waits then _start.after_mode end,
           _start.traceparent, _start.tracestate, title
    on conflict on constraint runs_pkey do nothing;
    is_known := not found;
  end if;
  if is_known and _start.key is not null then
    _start.status := 'existing';
  elsif is_known then
    raise exception 'run % already exists', _start.run_id
      using errcode = '23505', schema = 'pgflowd', table = 'runs', constraint = 'runs_pkey',
            detail = format('Key (run_id)=(%s) already exists.', _start.run_id);
  elsif waits then
    perform pgflowd._await_runs(_start.run_id, _start.after);
  elsif _start.status = 'started' then
    perform from pgflow.start_flow(_start.flow_slug, _start.input, _start.run_id);
    if _start.singleton_key is not null then
      perform pgflowd._watch_runs(array[_start.run_id]);
    end if;
  end if;
  if not is_known and due_at is not null then
    perform pgflowd._notify_due(due_at);
  end if;
end $$;
