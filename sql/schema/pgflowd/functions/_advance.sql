-- _advance(run_id): lets the core do what follows when a step has ended: conditions, empty maps,
-- ready steps, the end of the run. A core without conditions has no function for them.
-- Called by: retry.   Locks: see the core; the caller holds run and steps.
create or replace function pgflowd._advance(run_id uuid)
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  if to_regprocedure('pgflow.cascade_resolve_conditions(uuid)') is not null then
    if not pgflow.cascade_resolve_conditions(_advance.run_id) then
      return;
    end if;
  end if;
  perform pgflow.cascade_complete_taskless_steps(_advance.run_id);
  perform pgflow.start_ready_steps(_advance.run_id);
  perform pgflow.maybe_complete_run(_advance.run_id);
end $$;
