-- _is_person(worker_id): whether this worker is a person, who sends no heartbeats: its id is made of its
-- queue and its name.
-- Called by: _count_slots, _may_be_at_work, open_tasks, _process_line,
-- pgflow._prune_workers, _requeue_stalled, retry, run_steps.
-- Locks: nothing.
create or replace function pgflowd._is_person(worker_id uuid)
returns boolean language plpgsql stable set search_path = '', pg_temp as $$
begin
  return exists (
    select from pgflow.workers as worker
     where worker.worker_id = _is_person.worker_id
       and pgflowd._person_id(worker.queue_name, worker.function_name) = worker.worker_id);
end $$;
