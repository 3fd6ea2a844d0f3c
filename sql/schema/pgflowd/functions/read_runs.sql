-- read_runs(run_ids, max_bytes): returns these runs in their order as they are now: status, output and
-- error. Of outputs with more than so many bytes together only the first, but one at least. PF002 for an
-- unknown run. `missing` stands for a column that some cores do not have, as in news.
-- Called by: workers.   Locks: nothing.
create or replace function pgflowd.read_runs(run_ids uuid[], max_bytes bigint)
returns table (run_id uuid, status text, output jsonb, error text)
language plpgsql stable set search_path = '', pg_temp as $$
declare
  known record;
  bytes bigint := 0;
begin
  for known in
    select given.run_id, judged.status, judged.cancel_reason, core.output, core.error_message,
           coalesce(pg_column_size(core.output), 0) as bytes
      from unnest(read_runs.run_ids) with ordinality as given (run_id, nr)
      left join lateral (
        select one.status, one.cancel_reason from pgflowd.run_status as one
         where one.run_id = given.run_id offset 0) as judged on true
      left join lateral (
        select one.output, one.error_message
          from (values (null::text)) as missing (error_message)
         cross join lateral (
           select run.output, error_message from pgflow.runs as run
            where run.run_id = given.run_id offset 0) as one) as core on true
     order by given.nr
  loop
    if known.status is null then
      raise exception 'there is no run %: it was deleted, or never started', known.run_id
        using errcode = 'PF002';
    end if;
    bytes := bytes + known.bytes;
    exit when bytes > read_runs.max_bytes and run_id is not null;
    run_id := known.run_id;
    status := known.status;
    output := case when known.status = 'completed' then known.output end;
    error := case when known.status <> 'completed'
                  then coalesce(known.error_message, known.cancel_reason) end;
    return next;
  end loop;
end $$;
