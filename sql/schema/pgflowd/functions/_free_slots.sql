-- _free_slots(elements): the attempts of these elements have ended, so their places of limits are free. It
-- only notes that: the claim behind the report, or the sweep, passes them on, so a report waits for
-- nobody, and changes nothing of another run.
-- Called by: _close_attempts.   Locks: slots of its own tasks; the caller holds the tasks.
create or replace function pgflowd._free_slots(elements pgflowd.element[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  update pgflowd.slots as slot set free_at = now()
    from unnest(_free_slots.elements) as element
   where element.is_limited
     and slot.run_id = element.run_id and slot.step_slug = element.step_slug
     and slot.task_index = element.task_index and slot.given_at is null
     and not exists (select from pgflowd.attempts as attempt
                      where attempt.run_id = slot.run_id and attempt.step_slug = slot.step_slug
                        and attempt.task_index = slot.task_index and attempt.ended_at is null
                     offset 0);
  if found then
    perform pgflowd._notify_due(now());
  end if;
end $$;
