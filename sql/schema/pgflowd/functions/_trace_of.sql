-- _trace_of(run_id, step_slug, task_index, token): returns what the spans of an attempt need to know
-- besides its task: `traceparent` and `tracestate` of the caller, `is_later` if the run did not begin
-- with its start; `undo_of`, with the traceparent of that run; `previous`, how the attempt before ended,
-- if there was one. Null if there is nothing to say. A run that begins with its start is older than its
-- row here.
-- Called by: _start_attempts, export_attempts, export_runs.   Locks: nothing.
create or replace function pgflowd._trace_of(
  run_id uuid, step_slug text, task_index int, token bigint)
returns jsonb language plpgsql stable set search_path = '', pg_temp as $$
declare
  ours pgflowd.runs;
  previous text;
begin
  select one.* into ours from pgflowd.runs as one where one.run_id = _trace_of.run_id;
  select before.outcome into previous from pgflowd.attempts as before
   where before.run_id = _trace_of.run_id and before.step_slug = _trace_of.step_slug
     and before.task_index = _trace_of.task_index and before.token < _trace_of.token
   order by before.token desc limit 1;
  if coalesce(ours.traceparent, ours.undo_of::text, previous) is null then
    return null;
  end if;
  return jsonb_strip_nulls(jsonb_build_object(
    'traceparent', coalesce(ours.traceparent, (
      select undone.traceparent from pgflowd.runs as undone where undone.run_id = ours.undo_of)),
    'tracestate', ours.tracestate, 'undo_of', ours.undo_of, 'previous', previous,
    'is_later', case when pgflowd._began_later(ours) then true end));
end $$;
