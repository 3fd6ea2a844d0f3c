-- What the last migrate recorded of the catalog: object and fingerprint.
select recorded.key as object, recorded.value as fingerprint
  from pgflowd.schema_history as history
 cross join lateral jsonb_each_text(history.objects) as recorded
 where history.objects is not null
