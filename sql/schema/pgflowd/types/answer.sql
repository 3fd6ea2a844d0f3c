-- answer: the answer to one element of a report; `ord` is its place in the report, from 1.
-- `run_status` is the status in which its run ended while the element was recorded, else null.
do $$
begin
  if to_regtype('pgflowd.answer') is null then
    create type pgflowd.answer as (
      ord int,
      token bigint,
      verdict text,
      sqlstate text,
      message text,
      run_id uuid,
      run_status text
    );
  end if;
end $$;
