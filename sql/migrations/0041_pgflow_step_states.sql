-- Migration 0041: the index of states by flow is used for a flow only. A released migration never changes.

drop index if exists pgflow.idx_step_states_flow_slug;
create index if not exists idx_step_states_flow_slug on pgflow.step_states (flow_slug, step_slug)
  where flow_slug is not null;
