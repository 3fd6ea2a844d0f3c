-- _resolve_steps(run_id): resolves conditions and completes empty maps in turn, until neither
-- changes anything: an empty map may make a step ready that has a condition.
-- False when a condition has failed the run.
-- Called by: _advance, _start_runs.   Locks: see the two functions.
create or replace function pgflow._resolve_steps(run_id uuid)
returns boolean language plpgsql set search_path = '', pg_temp as $$
begin
  loop
    if not pgflow.cascade_resolve_conditions(_resolve_steps.run_id) then
      return false;
    end if;
    if pgflow.cascade_complete_taskless_steps(_resolve_steps.run_id) = 0 then
      return true;
    end if;
  end loop;
end $$;
