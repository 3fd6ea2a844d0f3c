-- minutes: what workers did in each minute: of each step how many attempts ended and how, and how long
-- they ran and had waited; step '' has the runs that ended. After two days they are added up to hours,
-- which stay for ninety. `ran` and `waited` are histograms: how many took at most so long as
-- _time_bounds says, in the last place longer. Workers of other runtimes are not in it. A worker writes
-- once a minute while tasks end, so no report does.
create table if not exists pgflowd.minutes (
  flow_slug text not null,
  is_hour boolean not null default false,
  at timestamptz not null,
  step_slug text not null,
  completed bigint not null default 0,
  failed bigint not null default 0,
  timed_out bigint not null default 0,
  crashed bigint not null default 0,
  ran bigint[],
  waited bigint[],
  constraint minutes_pkey primary key (flow_slug, is_hour, at, step_slug),
  constraint minutes_flow_slug_fkey foreign key (flow_slug)
    references pgflow.flows (flow_slug) on delete cascade
);
