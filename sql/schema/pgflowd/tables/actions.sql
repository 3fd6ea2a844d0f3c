-- actions: what people and clients did, one row for each verb that really did something: who, when, why,
-- and in `data` what else belongs to it, such as what was there before. `action` is the name of the verb's
-- function; that of an answer is `approve` or `reject`. What the system does by itself leaves none.
-- `actor` is what the caller says; `session_role` is the role by which it was connected, which nobody can
-- choose: no function writes it. Without foreign keys: what somebody did stays when the run or the flow is deleted.
create table if not exists pgflowd.actions (
  action_id bigint generated always as identity,
  at timestamptz not null default now(),
  actor text not null,
  action text not null,
  flow_slug text,
  run_id uuid,
  step_slug text,
  task_index int,
  reason text,
  data jsonb,
  session_role text default session_user,
  constraint actions_pkey primary key (action_id)
);
create index if not exists actions_run_id
  on pgflowd.actions (run_id, action_id) where run_id is not null;
create index if not exists actions_at on pgflowd.actions (at);
create index if not exists actions_flow_slug
  on pgflowd.actions (flow_slug, action_id) where run_id is null and flow_slug is not null;
