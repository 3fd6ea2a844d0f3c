-- _delete_runs(run_ids): deletes these runs with all that belongs to them: messages in their queue, tasks
-- with attempts, waits, checkpoints and places of limits, steps, signals, entries. Actions stay. Returns
-- how many rows there were.
-- Called by: delete_run, _prune, pgflow.prune_data_older_than.
-- Locks: all that is deleted; the caller holds the runs.
create or replace function pgflowd._delete_runs(
  run_ids uuid[], out step_states bigint, out step_tasks bigint)
language plpgsql set search_path = '', pg_temp as $$
begin
  perform pgflowd._delete_messages(_delete_runs.run_ids, 'q');
  perform pgflowd._forget_runs(_delete_runs.run_ids);
  delete from pgflow.step_tasks as task where task.run_id = any (_delete_runs.run_ids);
  get diagnostics step_tasks = row_count;
  delete from pgflow.step_states as state where state.run_id = any (_delete_runs.run_ids);
  get diagnostics step_states = row_count;
  delete from pgflow.runs as run where run.run_id = any (_delete_runs.run_ids);
end $$;
