-- _set_starts(flow_slug, shape): what each start has from its input is what this shape says, or nothing.
-- Called by: _define.   Locks: what it changes; the caller has the flow's definition.
create or replace function pgflowd._set_starts(flow_slug text, shape jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  wanted constant jsonb := nullif(jsonb_strip_nulls(jsonb_build_object(
    'title', _set_starts.shape #> '{options,title}', 'labels', _set_starts.shape #> '{options,labels}',
    'expires', _set_starts.shape #> '{options,expires}',
    'singleton', _set_starts.shape #> '{options,singleton}')), '{}');
  known jsonb;
begin
  select flow.starts into known from pgflow.flows as flow
   where flow.flow_slug = _set_starts.flow_slug;
  if nullif(known, 'null') is distinct from wanted then
    update pgflow.flows as flow set starts = wanted where flow.flow_slug = _set_starts.flow_slug;
  end if;
end $$;
