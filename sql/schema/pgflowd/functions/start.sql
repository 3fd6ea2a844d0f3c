-- start(flow_slug, input, run_id, start_at, expires_at, labels, key, singleton_key, on_conflict, actor,
-- after, after_mode, traceparent, tracestate): starts a run that has wishes, and returns its id and
-- what became of it: `started`, `scheduled`, `blocked`, `expired`, `existing`. A start without wishes
-- is pgflow.start_flow. `flow_slug`: a name means its current version, in which the run stays; the flow
-- of a version is meant exactly. `start_at`: the run begins then, by the sweep (process_due), and does
-- not exist before. `expires_at`: the run ends then; it never begins, or it is cancelled. `labels`: an
-- object of texts, by which list_runs finds it. `key`: whoever starts this flow with this key again
-- gets this run, ended or not, until it is deleted; its id is made of both (_run_id_of_key).
-- `singleton_key`: one run at a time has it. While another one does, `on_conflict` decides: this one
-- waits in line (`wait`), the other one is returned (`existing`), PF006 (`reject`), or the other one is
-- cancelled with all in line (`replace`). A scheduled one counts for `existing` and `reject` only, as
-- does one that waits for others. `actor`: who asks for it. `after`: the run begins when all of these
-- runs have ended, by the sweep; with `after_mode` `completed` it is cancelled if one of them ends in
-- another way, with `ended` it begins all the same. `traceparent`: the trace of the caller, as W3C
-- writes it, to which the run then belongs; `tracestate` with it. PF002 for an unknown flow, PF007 for
-- an unknown run to wait for, PF009 for wishes that cannot be, PF035 for other runs to wait for on a
-- foreign core; the core's errors for an input that a root map does not take, and for an id that is
-- taken. Security definer, so that a role which may touch no table can start a flow; whoever has no
-- role of roles.sql needs a grant.
-- Called by: _start_scheduled, start_child; clients, applications.
-- Locks: the flow against deletion; the key, for which only `existing` and `reject` wait; the new rows;
-- it waits for a transaction that starts the same id.
create or replace function pgflowd.start(
  flow_slug text, input jsonb, inout run_id uuid default null,
  start_at timestamptz default null, expires_at timestamptz default null,
  labels jsonb default null, key text default null, singleton_key text default null,
  on_conflict text default 'wait', actor text default null, after uuid[] default null,
  after_mode text default 'completed', traceparent text default null, tracestate text default null,
  out status text)
language plpgsql security definer set search_path = '', pg_temp as $$
declare
  has_to_know constant boolean := start.on_conflict in ('existing', 'reject');
  is_known boolean;
  waits constant boolean := coalesce(cardinality(start.after) > 0, false);
  due_at timestamptz;
  holder uuid;
begin
  perform pgflowd._check_wishes(start.run_id, start.start_at, start.expires_at, start.labels, start.key,
                                start.singleton_key, start.on_conflict, start.after, start.after_mode);
  perform pgflowd._check_trace(start.traceparent, start.tracestate);
  start.run_id := coalesce(
    start.run_id, pgflowd._run_id_of_key(pgflowd._name_of(start.flow_slug), start.key), gen_random_uuid());
  start.flow_slug := pgflowd.current_flow(start.flow_slug);
  perform pgflowd._check_input(start.flow_slug, start.input);
  if not exists (select from pgflow.flows as flow where flow.flow_slug = start.flow_slug) then
    raise exception 'there is no flow %', start.flow_slug using errcode = 'PF002';
  end if;
  start.status := case when start.expires_at <= now() then 'expired'
                       when start.start_at > now() then 'scheduled'
                       when waits then 'blocked' else 'started' end;

  is_known := exists (select from pgflow.runs as run where run.run_id = start.run_id);
  if not is_known and start.key is not null then  -- an older run, deleted by a foreign core
    delete from pgflowd.runs as gone
     where gone.run_id = start.run_id and gone.state = 'started'
       and not exists (select from pgflow.runs as run where run.run_id = gone.run_id);
  end if;
  is_known := is_known or exists (select from pgflowd.runs as run where run.run_id = start.run_id);
  if start.singleton_key is not null and start.status <> 'expired' and not is_known then
    perform pgflowd._watch_runs('{}');  -- raises on a foreign core
    if not pgflowd._lock_key(start.singleton_key, has_to_know) then
      start.status := case start.status when 'started' then 'blocked' else start.status end;
    end if;
    holder := pgflowd._key_holder(start.singleton_key, has_to_know);
    if holder is not null and start.on_conflict = 'reject' then
      raise exception 'run % has the singleton key %', holder, quote_literal(start.singleton_key)
        using errcode = 'PF006', detail = holder,
              hint = 'start it when that one has ended, or let it wait in line';
    elsif holder is not null and start.on_conflict = 'existing' then
      start.run_id := holder;
      start.status := 'existing';
      return;
    elsif holder is not null and start.status = 'started' then
      start.status := 'blocked';
    end if;
  end if;

  due_at := case when start.status = 'started' or (waits and start.status <> 'expired') then start.expires_at
                 when start.status = 'scheduled' then least(start.start_at, start.expires_at)
                 when start.status = 'blocked' then now() end;
  if not is_known then
    insert into pgflowd.runs (run_id, flow_slug, state, input, created_by, start_at, expires_at, due_at,
                              labels, expired_at, singleton_key, holds_key, replaces, after_mode,
                              traceparent, tracestate)
    select start.run_id, start.flow_slug,
           case start.status when 'expired' then 'ended' when 'started' then 'started'
                             else 'planned' end,
           case when start.status <> 'started' then start.input end, start.actor, start.start_at,
           start.expires_at, due_at, start.labels,
           case when start.status = 'expired' then now() end, start.singleton_key,
           start.singleton_key is not null and start.status = 'started',
           start.on_conflict = 'replace', case when waits then start.after_mode end,
           start.traceparent, start.tracestate
    on conflict on constraint runs_pkey do nothing;
    is_known := not found;
  end if;
  if is_known and start.key is not null then
    start.status := 'existing';
  elsif is_known then
    raise exception 'run % already exists', start.run_id
      using errcode = '23505', schema = 'pgflowd', table = 'runs', constraint = 'runs_pkey',
            detail = format('Key (run_id)=(%s) already exists.', start.run_id);
  elsif waits then
    perform pgflowd._await_runs(start.run_id, start.after);
  elsif start.status = 'started' then
    perform from pgflow.start_flow(start.flow_slug, start.input, start.run_id);
    if start.singleton_key is not null then
      perform pgflowd._watch_runs(array[start.run_id]);
    end if;
  end if;
  if not is_known and due_at is not null then
    perform pgflowd._notify_due(due_at);
  end if;
end $$;
