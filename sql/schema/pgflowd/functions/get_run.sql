-- get_run(run_id): the document of pgflow.get_run_with_states, with what view run_status knows of the run;
-- also of one that has not begun, or never did. Null for an unknown run. What is planned is read first,
-- and the run once more if it has begun meanwhile, so that one which begins just now is never unknown.
-- Security definer, so that a role which may read no table can follow its runs; volatile, as that
-- function is.
-- Called by: pgflow.start_flow_with_states; clients.   Locks: nothing.
create or replace function pgflowd.get_run(run_id uuid)
returns jsonb language plpgsql security definer set search_path = '', pg_temp as $$
declare
  planned jsonb;
  document jsonb;
  known record;
begin
  select jsonb_build_object('steps', '[]'::jsonb, 'run', jsonb_build_object(
           'run_id', run.run_id, 'flow_slug', run.flow_slug, 'input', run.input,
           'remaining_steps', (select count(*) from pgflow.steps as step
                                where step.flow_slug = run.flow_slug)))
    into planned
    from pgflowd.runs as run where run.run_id = get_run.run_id and run.state <> 'started';
  document := coalesce(pgflow.get_run_with_states(get_run.run_id), planned);
  select one.* into known from pgflowd.run_status as one where one.run_id = get_run.run_id;
  if known.started_at is not null and document #>> '{run,started_at}' is null then
    document := pgflow.get_run_with_states(get_run.run_id);
  end if;
  return jsonb_set(document, '{run}', document -> 'run' || jsonb_build_object(
    'status', known.status, 'start_at', known.start_at, 'expires_at', known.expires_at,
    'expired_at', known.expired_at, 'labels', known.labels, 'title', known.title, 'singleton', known.singleton_key,
    'created_by', known.created_by, 'blocked_by', known.blocked_by,
    'parent_run_id', known.parent_run_id, 'cancelled_at', known.cancelled_at,
    'cancelled_by', known.cancelled_by, 'cancel_reason', known.cancel_reason,
    'paused_at', known.paused_at, 'paused_by', known.paused_by,
    'pause_reason', known.pause_reason, 'undo_of', known.undo_of, 'undo_run_id', known.undo_run_id,
    'undo_wanted_at', known.undo_wanted_at, 'undo_by', known.undo_by,
    'undo_reason', known.undo_reason));
end $$;
