-- start(flow_slug, input, run_id, start_at, expires_at, labels, key): starts a run that has wishes, and
-- returns its id and what became of it: `started`, `scheduled`, `expired`, `existing`. A start without
-- wishes is pgflow.start_flow.
--   start_at    the run begins then, by the sweep (process_due), and does not exist before
--   expires_at  the run ends then: it never begins, or it is cancelled
--   labels      an object of texts, by which list_runs finds it
--   key         whoever starts this flow with this key again gets this run, ended or not, until it
--               is deleted; its id is made of both (_run_id_of_key)
-- PF002 for an unknown flow, PF009 for wishes that cannot be; the core's errors for an input that a
-- root map does not take, and for an id that is taken.
-- Security definer, so that a role which may touch no table can start a flow; whoever has no role of
-- roles.sql needs a grant.
-- Called by: clients, applications.
-- Locks: the flow against deletion, the new rows; it waits for a transaction that starts the same id.
create or replace function pgflowd.start(
  flow_slug text, input jsonb, inout run_id uuid default null,
  start_at timestamptz default null, expires_at timestamptz default null,
  labels jsonb default null, key text default null, out status text)
language plpgsql security definer set search_path = '', pg_temp as $$
declare
  is_known boolean;
  due_at timestamptz;
begin
  perform pgflowd._check_wishes(
    start.run_id, start.start_at, start.expires_at, start.labels, start.key);
  if not exists (select from pgflow.flows as flow where flow.flow_slug = start.flow_slug) then
    raise exception 'there is no flow %', start.flow_slug using errcode = 'PF002';
  end if;
  perform pgflowd._check_input(start.flow_slug, start.input);
  start.run_id := coalesce(start.run_id, pgflowd._run_id_of_key(start.flow_slug, start.key),
                           gen_random_uuid());
  start.status := case when start.expires_at <= now() then 'expired'
                       when start.start_at > now() then 'scheduled' else 'started' end;
  due_at := case start.status when 'scheduled' then least(start.start_at, start.expires_at)
                              when 'started' then start.expires_at end;

  is_known := exists (select from pgflow.runs as run where run.run_id = start.run_id);
  if not is_known and start.key is not null then  -- an older run, deleted by a foreign core
    delete from pgflowd.runs as gone
     where gone.run_id = start.run_id and gone.state = 'started'
       and not exists (select from pgflow.runs as run where run.run_id = gone.run_id);
  end if;
  if not is_known then
    insert into pgflowd.runs (run_id, flow_slug, state, input, start_at, expires_at, due_at, labels,
                              expired_at)
    select start.run_id, start.flow_slug,
           case start.status when 'scheduled' then 'planned' when 'expired' then 'ended'
                             else 'started' end,
           case when start.status <> 'started' then start.input end, start.start_at,
           start.expires_at, due_at, start.labels, case when start.status = 'expired' then now() end
    on conflict on constraint runs_pkey do nothing;
    is_known := not found;
  end if;
  if is_known and start.key is not null then
    start.status := 'existing';
  elsif is_known then
    raise exception 'run % already exists', start.run_id
      using errcode = '23505', schema = 'pgflowd', table = 'runs', constraint = 'runs_pkey',
            detail = format('Key (run_id)=(%s) already exists.', start.run_id);
  elsif start.status = 'started' then
    perform from pgflow.start_flow(start.flow_slug, start.input, start.run_id);
  end if;
  if not is_known and due_at is not null then
    perform pgflowd._notify_due(due_at);
  end if;
end $$;
revoke execute on function pgflowd.start(text, jsonb, uuid, timestamptz, timestamptz, jsonb, text)
  from public;
