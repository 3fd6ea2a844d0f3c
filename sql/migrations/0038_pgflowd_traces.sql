-- Migration 0038: the trace to which a run belongs. A released migration never changes.

alter table pgflowd.runs
  add column if not exists traceparent text,
  add column if not exists tracestate text,
  drop constraint if exists a_traceparent_is_one,
  add constraint a_traceparent_is_one check (
    traceparent ~ '^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$'),
  drop constraint if exists a_tracestate_is_short,
  add constraint a_tracestate_is_short check (length(tracestate) <= 512),
  drop constraint if exists a_tracestate_has_a_traceparent,
  add constraint a_tracestate_has_a_traceparent check (tracestate is null or traceparent is not null);
drop function if exists pgflowd.news(uuid[]);  -- its rows have one more column now
