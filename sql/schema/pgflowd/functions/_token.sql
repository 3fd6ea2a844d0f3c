-- _token(report): returns the token of an element of a report, null when it is not a number.
-- Queries inline it, so it has no settings of its own.
-- Called by: _report_element, _report_singly.   Locks: nothing.
create or replace function pgflowd._token(report jsonb)
returns bigint language sql immutable as $$
  select case when jsonb_typeof(_token.report -> 'token') = 'number'
              then (_token.report ->> 'token')::numeric::bigint end;
$$;
