-- _check_trace(traceparent, tracestate): raises PF009 for what is no trace as W3C writes it, in version 00.
-- Called by: _start.   Locks: nothing.
create or replace function pgflowd._check_trace(traceparent text, tracestate text)
returns void language plpgsql immutable set search_path = '', pg_temp as $$
begin
  if traceparent !~ '^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$' then
    raise exception 'a traceparent cannot be %', quote_literal(left(traceparent, 100))
      using errcode = 'PF009',
            hint = 'write 00, the id of the trace, that of a span and the flags, or leave it out';
  elsif length(tracestate) > 512 or (tracestate is not null and traceparent is null) then
    raise exception 'a tracestate of % characters cannot be', length(tracestate)
      using errcode = 'PF009', hint = 'give at most 512, with a traceparent, or leave it out';
  end if;
end $$;
