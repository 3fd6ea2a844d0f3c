-- The functions of schema pgflow that are not as the last migrate recorded them, that are gone, or that
-- were added with the name of one of ours, so that calls may find them instead.
with present as (
  select it.object, it.fingerprint from (<fingerprint>) as it where it.object like 'function pgflow.%'
), known as (
  select recorded.key as object, recorded.value as fingerprint
    from pgflowd.schema_history as history
   cross join lateral jsonb_each_text(history.objects) as recorded
   where history.objects is not null and recorded.key like 'function pgflow.%'
)
select object from known full join present using (object)
 where known.fingerprint is distinct from present.fingerprint
   and split_part(object, '(', 1) in (select split_part(one.object, '(', 1) from known as one)
 order by object
