-- start(flow_slug, input, run_id, start_at, expires_at, labels, key, singleton_key, on_conflict, actor,
-- after, after_mode, traceparent, tracestate, after_keys): starts a run that has wishes, and returns its id and
-- what became of it: `started`, `scheduled`, `blocked`, `expired`, `existing`. A start without wishes
-- is pgflow.start_flow. What the flow says of each start holds where this one says nothing (_start). `flow_slug`: a name means its current version, in which the run stays; the flow
-- of a version is meant exactly. `start_at`: the run begins then, by the sweep (process_due), and does
-- not exist before. `expires_at`: the run ends then; it never begins, or it is cancelled. `labels`: an
-- object of texts, by which list_runs finds it. `key`: whoever starts this flow with this key again
-- gets this run, ended or not, until it is deleted; its id is made of both (_run_id_of_key).
-- `singleton_key`: one run at a time has it. While another one does, `on_conflict` decides: this one
-- waits in line (`wait`), the other one is returned (`existing`), PF006 (`reject`), or the other one is
-- cancelled with all in line (`replace`). A scheduled one counts for `existing` and `reject` only, as
-- does one that waits for others. `actor`: who asks for it. `after`: the run begins when all of these
-- runs have ended, by the sweep; with `after_mode` `completed` it is cancelled if one of them ends in
-- another way, with `ended` it begins all the same. `after_keys`: likewise the runs of
-- this flow with these keys. `traceparent`: the trace of the caller, as W3C
-- writes it, to which the run then belongs; `tracestate` with it. PF002 for an unknown flow, PF007 for
-- an unknown run to wait for, PF009 for wishes that cannot be; the core's errors for an input that a root map does not take, and for an id that is
-- taken. Ids of version 8 and keys that begin with `schedule ` are given by nobody (_check_reserved).
-- Security definer, so that a role which may touch no table can start a flow; whoever has no
-- role of roles.sql needs a grant.
-- Called by: clients, applications.
-- Locks: the flow against deletion; the key, for which only `existing` and `reject` wait; the new rows;
-- it waits for a transaction that starts the same id.
create or replace function pgflowd.start(
  flow_slug text, input jsonb, inout run_id uuid default null,
  start_at timestamptz default null, expires_at timestamptz default null,
  labels jsonb default null, key text default null, singleton_key text default null,
  on_conflict text default 'wait', actor text default null, after uuid[] default null,
  after_mode text default 'completed', traceparent text default null, tracestate text default null,
  after_keys text[] default null,
  out status text)
language plpgsql security definer set search_path = '', pg_temp as $$
begin
  perform pgflowd._check_reserved(start.run_id, start.key, start.singleton_key);
  if start.after_keys is not null then
    start.after := start.after
      || pgflowd._runs_of_keys(pgflowd._name_of(start.flow_slug), start.after_keys);
  end if;
  select started.run_id, started.status into start.run_id, start.status
    from pgflowd._start(
      start.flow_slug, start.input, start.run_id, start.start_at, start.expires_at, start.labels,
      start.key, start.singleton_key, start.on_conflict, start.actor, start.after, start.after_mode,
      start.traceparent, start.tracestate) as started;
end $$;
