-- step_options: what a step asks for besides the options in pgflow.steps. Only steps that ask for
-- something have a row. `needs`: the caps that a worker must have, all of them; they follow the code
-- each time that a flow is defined. `limit_slots`: how many of its tasks may be at work at once, or of
-- all those that share `limit_name` and what stands at `limit_path` in the run's input ({run,…}) or the
-- map's element ({item,…}). `crash_limit` and `on_crash_limit` stand for the settings of these names.
-- `undo`: the step undo_<step_slug> of flow undo_<flow_slug> undoes its tasks, those that `completed`,
-- or all that were `attempted`; it follows the code. `deployed`: what the code said of the options that
-- may be tuned when it was last deployed, by their names in shapes (compare_options).
create table if not exists pgflowd.step_options (
  flow_slug text not null,
  step_slug text not null,
  needs text[],
  limit_slots int,
  limit_name text,
  limit_path text[],
  crash_limit int,
  on_crash_limit text,
  undo text,
  deployed jsonb,
  constraint step_options_pkey primary key (flow_slug, step_slug),
  constraint step_options_step_fkey foreign key (flow_slug, step_slug)
    references pgflow.steps (flow_slug, step_slug) on delete cascade,
  constraint a_limit_has_places check (limit_slots > 0 and limit_name is not null or limit_slots is null),
  constraint crash_limit_is_one check (crash_limit between 1 and 1000),
  constraint on_crash_limit_is_known check (on_crash_limit in ('fail', 'quarantine')),
  constraint undo_is_known check (undo in ('completed', 'attempted'))
);
