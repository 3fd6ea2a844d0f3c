-- flow_options: what is known of a flow's options besides those in pgflow.flows. Only flows whose code
-- sets an option have a row. `on_failure`, `on_cancel`: whether a run that fails, or is cancelled, is
-- undone; null is `undo` and `keep`. They follow the code each time that a flow is defined, and mean
-- nothing while no step has an undo. `deployed`: what the code said of the other options when it was
-- last deployed, by their names in shapes (compare_options). `input_schema`: the JSON Schema of what
-- runs take, if the code says so by types.
create table if not exists pgflowd.flow_options (
  flow_slug text not null,
  on_failure text,
  on_cancel text,
  deployed jsonb,
  input_schema jsonb,
  constraint flow_options_pkey primary key (flow_slug),
  constraint flow_options_flow_slug_fkey foreign key (flow_slug)
    references pgflow.flows (flow_slug) on delete cascade,
  constraint on_failure_is_known check (on_failure in ('keep', 'undo')),
  constraint on_cancel_is_known check (on_cancel in ('keep', 'undo'))
);
