-- keep_last(worker_id, tokens, told, printed, printed_lines): keeps the last progress of attempts of
-- this worker that have ended, where it is given, and what they have printed. A worker calls it after
-- `report`, in its transaction, so both are there or neither; and alone for tasks that their runners
-- have completed. It is no reason for a report to fail: what cannot be stored is dropped, with a
-- warning.
-- Called by: workers.   Locks: attempts, skipping locked ones.
create or replace function pgflowd.keep_last(
  worker_id uuid, tokens bigint[], told text[], printed text[], printed_lines int[])
returns void language plpgsql set search_path = '', pg_temp as $$
begin
  update pgflowd.attempts as attempt
     set progress = coalesce(given.told::jsonb || jsonb_build_object('at', attempt.ended_at),
                             attempt.progress),
         printed = given.printed, printed_lines = given.printed_lines
    from (select one.token
            from pgflowd.attempts as one
           where one.token = any(keep_last.tokens) and one.worker_id = keep_last.worker_id
             and one.ended_at is not null and one.outcome <> 'lost'
           order by one.token for no key update skip locked) as free
    join unnest(keep_last.tokens, keep_last.told, keep_last.printed, keep_last.printed_lines)
           as given (token, told, printed, printed_lines) on given.token = free.token
   where attempt.token = free.token;
exception when data_exception or program_limit_exceeded then
  raise warning 'the output of % attempts could not be kept: %', cardinality(keep_last.tokens), sqlerrm;
end $$;
