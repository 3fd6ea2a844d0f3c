-- _crash_limit(run_id, step_slug): returns after how many stalls in a row a task of this step ends, and
-- whether it fails or is set aside then: as the step has it, else as the settings.
-- Called by: _recover_some, _requeue_stalled.   Locks: nothing.
create or replace function pgflowd._crash_limit(
  run_id uuid, step_slug text, out most int, out does_fail boolean)
language plpgsql stable set search_path = '', pg_temp as $$
declare
  asked pgflowd.step_options;
begin
  select option.* into asked
    from pgflow.runs as run
    join pgflowd.step_options as option on option.flow_slug = run.flow_slug
   where run.run_id = _crash_limit.run_id and option.step_slug = _crash_limit.step_slug;
  most := coalesce(asked.crash_limit, pgflowd.setting('crash_limit')::int);
  does_fail := coalesce(asked.on_crash_limit, pgflowd.setting('on_crash_limit') #>> '{}') = 'fail';
end $$;
