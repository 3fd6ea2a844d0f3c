-- _record_report(action, verdict, actor, run_id, step_slug, task_index, reason, data): keeps what a person
-- reported about a task, and what it became; nothing if the same report came before.
-- Called by: task_complete, task_fail, task_release.   Locks: see _record_action.
create or replace function pgflowd._record_report(
  action text, verdict text, actor text, run_id uuid, step_slug text, task_index int,
  reason text default null, data jsonb default '{}')
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  if _record_report.verdict <> 'repeated' then
    perform pgflowd._record_action(
      _record_report.action, _record_report.actor, run_id => _record_report.run_id,
      step_slug => _record_report.step_slug, task_index => _record_report.task_index,
      reason => _record_report.reason,
      data => jsonb_build_object('result', _record_report.verdict) || _record_report.data);
  end if;
end $$;
