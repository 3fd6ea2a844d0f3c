-- _run_in_input(): whether workers of other runtimes find the run's input under `run`, unless their
-- connection says otherwise. Security definer, for callers that may use schema pgflow only.
-- Called by: _start_tasks.   Locks: nothing.
create or replace function pgflow._run_in_input()
returns boolean language plpgsql stable security definer set search_path = '', pg_temp as $$
begin
  return pgflowd.setting('run_in_input')::boolean;
end $$;
