-- _process_undos(run_ids): starts the undo of those of these runs that are to be undone, and ends the
-- undo of what those undid that are undos themselves. Returns those to look at again soon. Where an undo
-- cannot be started, that is tried again in a minute, and a notice, PF013, says so.
-- Called by: _process_runs.   Locks: see _start_undo and _end_undo; the caller holds the runs.
create or replace function pgflowd._process_undos(run_ids uuid[])
returns uuid[] language plpgsql set search_path = '', pg_temp as $$
declare
  run record;
  again uuid[] := '{}';
begin
  for run in
    select one.run_id, one.undo_of from pgflowd.runs as one
     where one.run_id = any (_process_undos.run_ids)
       and (one.undo_state = 'wanted'
            or one.undo_of is not null
               and exists (select from pgflow.runs as core
                            where core.run_id = one.run_id and core.status <> 'started'))
     order by one.run_id
  loop
    begin
      if not (case when run.undo_of is null then pgflowd._start_undo(run.run_id)
                   else pgflowd._end_undo(run.run_id) end) then
        again := again || run.run_id;
      end if;
    exception when others then
      update pgflowd.runs as one set due_at = now() + interval '1 minute'
       where one.run_id = run.run_id;
      raise notice 'run % cannot be undone: %', coalesce(run.undo_of, run.run_id), sqlerrm
        using errcode = 'PF013', detail = jsonb_build_object('run', run.run_id, 'error', sqlerrm);
    end;
  end loop;
  return again;
end $$;
