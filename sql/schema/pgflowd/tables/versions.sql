-- versions: the versions of flows whose shape has changed. Each is a flow of its own in pgflow.flows,
-- with a queue of its own: `flow_slug` of the first is the name itself, of the others the name and a
-- number. A flow of which nobody has changed the shape has no row. `is_current`: starts by name go
-- there. `fingerprint`: of its shape (_shape_fingerprint). A version's row is made before its flow,
-- which looks here for its name. `code`: what whoever deployed it said of the code, such as a commit.
create table if not exists pgflowd.versions (
  name text not null,
  version int not null,
  flow_slug text not null,
  fingerprint text not null,
  deployed_at timestamptz not null default now(),
  deployed_by text,
  code text,
  is_current boolean not null default false,
  constraint versions_pkey primary key (name, version),
  constraint versions_flow_slug_key unique (flow_slug),
  constraint versions_flow_fkey foreign key (flow_slug)
    references pgflow.flows (flow_slug) on delete cascade deferrable initially deferred
);
create unique index if not exists versions_current on pgflowd.versions (name) where is_current;
