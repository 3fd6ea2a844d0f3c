-- get_run(run_id, with_states): what is true of a run, in one document: its row in pgflow.runs, its step
-- states unless `with_states` is false, and over both what view run_status has; also of a run that has
-- not begun, or never did. Null for an unknown run. Row and view are read one after the other, and again
-- if the run has begun or ended in between, so that they fit; what is planned is read first, so that a run
-- which begins just now is never unknown. A row that is too large for a document is cut as
-- pgflow.get_run_with_states does.
-- Security definer, so that a role which may read no table can follow its runs; volatile, so that it sees
-- a run started earlier in the same statement.
-- Called by: start_runs, pgflow.start_flow_with_states; clients, commands.   Locks: nothing.
create or replace function pgflowd.get_run(run_id uuid, with_states boolean default true)
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
  loop
    if with_states then
      document := pgflow.get_run_with_states(get_run.run_id);
    else
      select case when pg_column_size(run.input) + coalesce(pg_column_size(run.output), 0) > 1000000
                  then pgflow.get_run_with_states(run.run_id) - 'steps'
                  else jsonb_build_object('run', to_jsonb(run)) end
        into document from pgflow.runs as run where run.run_id = get_run.run_id;
    end if;
    document := coalesce(document, planned);
    select one.* into known from pgflowd.run_status as one where one.run_id = get_run.run_id;
    exit when known.started_at is not distinct from (document #>> '{run,started_at}')::timestamptz
          and (known.started_at is null
               or known.ended_at is not distinct from coalesce(
                    document #>> '{run,completed_at}', document #>> '{run,failed_at}')::timestamptz);
  end loop;
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
