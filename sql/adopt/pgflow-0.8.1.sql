-- Brings the tables and the type of pgflow 0.8.1 to ours, once its functions are gone. What is in them
-- stays: flows, runs, tasks, workers. Open runs go on, so each completed step gets the output that 0.8.1
-- puts together of its tasks each time. Nobody reads or writes meanwhile: all locks are taken at once, or none.
-- Each try waits for less than PostgreSQL takes to find a deadlock, so that no call of another program is
-- the one that is ended.
do $$
declare
  patience text := current_setting('lock_timeout');
begin
  for try in 1..60 loop
    begin
      set local lock_timeout = '200ms';
      lock table pgflow.flows, pgflow.steps, pgflow.deps, pgflow.runs, pgflow.step_states,
                 pgflow.step_tasks, pgflow.workers in access exclusive mode;
      perform set_config('lock_timeout', patience, true);
      return;
    exception when lock_not_available then
      perform pg_sleep(0.1 * random());
    end;
  end loop;
  raise exception 'the tables of schema pgflow were never free at once' using errcode = '55P03';
end
$$;

alter type pgflow.step_task_record add attribute flow_input jsonb;

drop index pgflow.idx_deps_by_flow_dep, pgflow.idx_runs_flow_slug, pgflow.idx_runs_status,
           pgflow.idx_step_states_failed, pgflow.idx_step_states_flow_slug,
           pgflow.idx_step_states_ready, pgflow.idx_step_states_run_id,
           pgflow.idx_step_tasks_completed, pgflow.idx_step_tasks_failed,
           pgflow.idx_step_tasks_flow_run_step, pgflow.idx_step_tasks_last_worker,
           pgflow.idx_step_tasks_message_id, pgflow.idx_step_tasks_queued,
           pgflow.idx_step_tasks_queued_msg, pgflow.idx_step_tasks_started,
           pgflow.idx_workers_heartbeat;

alter table pgflow.flows
  add column flow_type text not null default 'flow',
  add column is_gated boolean not null default false,
  add column starts jsonb,
  add constraint flow_type_is_valid check (flow_type in ('flow', 'job'));
create unique index flows_lower_flow_slug_key on pgflow.flows (lower(flow_slug collate "C"));

alter table pgflow.steps
  add column required_input_pattern jsonb,
  add column forbidden_input_pattern jsonb,
  add column when_unmet text not null default 'skip',
  add column when_exhausted text not null default 'fail',
  add column queue_name text not null generated always as (lower(flow_slug collate "C")) stored,
  add column is_gated boolean not null default false,
  add column settles boolean not null default false,
  add constraint required_input_pattern_is_object
    check (required_input_pattern is null or jsonb_typeof(required_input_pattern) = 'object'),
  add constraint forbidden_input_pattern_is_object
    check (forbidden_input_pattern is null or jsonb_typeof(forbidden_input_pattern) = 'object'),
  add constraint when_unmet_is_valid check (when_unmet in ('fail', 'skip', 'skip-cascade')),
  add constraint when_exhausted_is_valid check (when_exhausted in ('fail', 'skip', 'skip-cascade'));

alter table pgflow.runs
  add column error_message text,
  add column is_watched boolean not null default false,
  add column is_paused boolean not null default false,
  set (fillfactor = 35, autovacuum_vacuum_scale_factor = 0.05,
       autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
create index idx_runs_flow_slug on pgflow.runs (flow_slug, started_at desc);
create index idx_runs_started_at on pgflow.runs (started_at desc);

alter table pgflow.step_states
  drop constraint completed_at_or_failed_at,
  drop constraint remaining_tasks_state_consistency,
  drop constraint status_is_valid,
  add column output jsonb,
  add column skip_reason text,
  add column skipped_at timestamptz,
  set (fillfactor = 35, autovacuum_vacuum_scale_factor = 0.05,
       autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
update pgflow.step_states as state
   set output = case step.step_type
         when 'map' then coalesce((
           select jsonb_agg(task.output order by task.task_index) from pgflow.step_tasks as task
            where task.run_id = state.run_id and task.step_slug = state.step_slug), '[]')
         else (select task.output from pgflow.step_tasks as task
                where task.run_id = state.run_id and task.step_slug = state.step_slug
                  and task.task_index = 0) end
  from pgflow.steps as step
 where state.status = 'completed' and step.flow_slug = state.flow_slug
   and step.step_slug = state.step_slug;
alter table pgflow.step_states
  add constraint status_is_valid
    check (status in ('created', 'started', 'completed', 'failed', 'skipped')),
  add constraint remaining_tasks_state_consistency
    check (remaining_tasks is null or status not in ('created', 'skipped')),
  add constraint output_only_for_completed_or_null check (output is null or status = 'completed'),
  add constraint skip_reason_matches_status
    check ((status = 'skipped' and skip_reason is not null)
           or (status <> 'skipped' and skip_reason is null)),
  add constraint skipped_at_is_after_created_at
    check (skipped_at is null or skipped_at >= created_at),
  add constraint completed_at_or_failed_at_or_skipped_at
    check ((case when completed_at is not null then 1 else 0 end
            + case when failed_at is not null then 1 else 0 end
            + case when skipped_at is not null then 1 else 0 end) <= 1);
create index idx_step_states_flow_slug on pgflow.step_states (flow_slug, step_slug)
  where flow_slug is not null;

alter table pgflow.step_tasks
  drop constraint valid_status,
  add column requeued_count int not null default 0,
  add column last_requeued_at timestamptz,
  add column permanently_stalled_at timestamptz,
  add column queue_name text not null generated always as (lower(flow_slug collate "C")) stored,
  add constraint valid_status
    check (status in ('queued', 'started', 'completed', 'failed', 'skipped')),
  set (fillfactor = 35, autovacuum_vacuum_scale_factor = 0.05,
       autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
create index idx_step_tasks_message_id on pgflow.step_tasks (flow_slug, message_id);
create index idx_step_tasks_without_message on pgflow.step_tasks (flow_slug)
  where message_id is null or permanently_stalled_at is not null;

alter table pgflow.workers
  add column stopped_at timestamptz,
  set (fillfactor = 50);

-- its workers find the run's input under `run`
select set_config('pgflowd.adopted_settings', '{"run_in_input": true}', true);

-- these objects are ours now, so that they are recorded and compared as such
select set_config('pgflowd.before', jsonb_set(before.it, '{present}', coalesce((
         select jsonb_object_agg(one.key, one.value)
           from jsonb_each(before.it -> 'present') as one
          where one.key !~ ' pgflow\.'), '{}'))::text, true)
  from (select current_setting('pgflowd.before')::jsonb) as before (it);
