-- answer: the answer to one element of a report; `ord` is its place in the report, from 1.
do $$
begin
  if to_regtype('pgflowd.answer') is null then
    create type pgflowd.answer as (
      ord int,
      token bigint,
      verdict text,
      sqlstate text,
      message text
    );
  end if;
end $$;
