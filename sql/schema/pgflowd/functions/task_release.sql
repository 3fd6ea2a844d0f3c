-- task_release(run_id, step_slug, task_index, delay, needs, actor, token): a person gives a task back;
-- returns the verdict, `queued`. No attempt is spent. After `delay` anybody may claim it; with `needs`,
-- instead, only who has all of these, for this once. The token is as in task_complete, and so are the
-- errors: a task that nobody has is delayed, or handed on.
-- Called by: `pgflowd tasks release`, applications.   Locks: see _hold_task and _report_alone.
create or replace function pgflowd.task_release(
  run_id uuid, step_slug text, task_index int, delay interval, needs text[], actor text,
  token bigint default null)
returns text language plpgsql security definer set search_path = '', pg_temp as $$
declare
  reason constant text := 'released by '
    || coalesce(nullif(task_release.actor, ''), session_user);
  held bigint;
  verdict text;
begin
  if task_release.needs is not null
     and pgflowd._joined_needs(to_jsonb(task_release.needs)) is null then
    raise exception 'needs % are none', task_release.needs using errcode = '22023',
      hint = 'needs are 1 to 32 texts of 1 to 64 ASCII characters, without blanks and commas';
  end if;
  held := coalesce(task_release.token, pgflowd._hold_task(
    task_release.run_id, task_release.step_slug, task_release.task_index, task_release.actor));
  if task_release.needs is null then
    verdict := pgflowd.release(
      task_release.run_id, task_release.step_slug, task_release.task_index, held,
      coalesce(task_release.delay, interval '0'), reason);
  else
    verdict := pgflowd._report_alone(row(
      1, task_release.run_id, task_release.step_slug, task_release.task_index, held, 'suspended',
      reason, null, null, null, null, null, null, null, null, jsonb_build_object(
        'kind', 'need', 'needs', task_release.needs, 'why', reason), null)::pgflowd.element, null);
  end if;
  perform pgflowd._record_report(
    'task_release', verdict, task_release.actor, task_release.run_id, task_release.step_slug,
    task_release.task_index, data => jsonb_strip_nulls(jsonb_build_object(
      'delay_s', nullif(extract(epoch from task_release.delay), 0), 'needs', task_release.needs)));
  return verdict;
end $$;
