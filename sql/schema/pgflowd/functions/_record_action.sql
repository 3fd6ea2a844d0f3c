-- _record_action(action, actor, run_id, flow_slug, step_slug, task_index, reason, data): keeps what a
-- person or client did (table actions). Each public function that a person or client calls to change
-- something calls this once, in the same transaction, when it has really done it: not when it refused
-- (it raised), nor when there was nothing left to do (`repeated`). Its parts that the system calls, too,
-- do not: `cancel` does, `_cancel` does not. action     the name of the verb's function, such as cancel
-- actor      who; the session's user if that is null or empty run_id, step_slug, task_index, flow_slug
-- what it is about; the flow of a run is found here reason     why, if anybody said so data       an
-- object with what else belongs to it, such as what it was before; null if nothing does It may be called
-- with the rights of the verb's caller: pgflow_worker may insert into the table, and nobody but owners
-- may change what is in it.
-- Called by: verbs, define, deploy_version, prune, prune_next, prune_versions, _record_report,
-- _record_reschedule, rollback_version, set_option, set_setting, task_claim;
-- pgflow.prune_data_older_than.   Locks: the new row.
create or replace function pgflowd._record_action(
  action text, actor text, run_id uuid default null, flow_slug text default null,
  step_slug text default null, task_index int default null, reason text default null,
  data jsonb default null)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  insert into pgflowd.actions (actor, action, flow_slug, run_id, step_slug, task_index, reason, data)
  values (
    left(coalesce(nullif(_record_action.actor, ''), session_user), 200), _record_action.action,
    coalesce(_record_action.flow_slug,
             (select run.flow_slug from pgflow.runs as run
               where run.run_id = _record_action.run_id),
             (select run.flow_slug from pgflowd.runs as run
               where run.run_id = _record_action.run_id)),
    _record_action.run_id, _record_action.step_slug, _record_action.task_index,
    left(nullif(_record_action.reason, ''), 4000), nullif(_record_action.data, '{}'));
end $$;
