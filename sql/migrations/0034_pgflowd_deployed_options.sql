-- Migration 0034: what the code said of each option when it was last deployed. Of flows that are there already
-- it said what the database has. A released migration never changes.

alter table pgflowd.flow_options add column if not exists deployed jsonb;
create index if not exists actions_flow_slug
  on pgflowd.actions (flow_slug, action_id) where run_id is null and flow_slug is not null;
alter table pgflowd.step_options add column if not exists deployed jsonb;

insert into pgflowd.flow_options (flow_slug, deployed)
select flow.flow_slug, known.deployed
  from pgflow.flows as flow
 cross join lateral (
   select jsonb_build_object('maxAttempts', flow.opt_max_attempts, 'baseDelay', flow.opt_base_delay,
                             'timeout', flow.opt_timeout) as deployed) as known
 where known.deployed <> '{"maxAttempts": 3, "baseDelay": 5, "timeout": 60}'
on conflict on constraint flow_options_pkey do update set deployed = excluded.deployed;
insert into pgflowd.step_options as known (flow_slug, step_slug, deployed)
select step.flow_slug, step.step_slug, one.deployed
  from pgflow.steps as step
  left join pgflowd.step_options as option
    on option.flow_slug = step.flow_slug and option.step_slug = step.step_slug
 cross join lateral (
   select jsonb_strip_nulls(jsonb_build_object(
            'maxAttempts', step.opt_max_attempts, 'baseDelay', step.opt_base_delay,
            'timeout', step.opt_timeout, 'startDelay', to_jsonb(step) -> 'opt_start_delay',
            'limit', option.limit_slots, 'crashLimit', option.crash_limit,
            'onCrashLimit', option.on_crash_limit)) as deployed) as one
 where one.deployed <> '{}'
on conflict on constraint step_options_pkey do update set deployed = excluded.deployed;

drop function if exists pgflowd.define(text, jsonb, boolean);
drop function if exists pgflowd.set_limit(text, text, int);
drop function if exists pgflowd._set_crash_limits(text, jsonb);
