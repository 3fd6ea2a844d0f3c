-- step_options: what a step asks for besides the options in pgflow.steps. Only steps that ask for
-- something have a row. `needs`: the caps that a worker must have, all of them; they follow the code
-- each time that a flow is defined.
create table if not exists pgflowd.step_options (
  flow_slug text not null,
  step_slug text not null,
  needs text[],
  constraint step_options_pkey primary key (flow_slug, step_slug),
  constraint step_options_step_fkey foreign key (flow_slug, step_slug)
    references pgflow.steps (flow_slug, step_slug) on delete cascade
);
