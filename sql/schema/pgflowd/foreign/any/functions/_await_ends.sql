-- _await_ends(elements): raises, since a foreign core does not say when a run ends: the task fails for good.
-- Called by: _suspend.   Locks: nothing.
create or replace function pgflowd._await_ends(elements pgflowd.element[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  raise exception 'only the core of pgflowd knows tasks that wait for the end of runs'
    using errcode = '22023', hint = 'start what follows as a run of its own';
end $$;
