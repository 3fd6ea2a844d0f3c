-- Records that a migrate has found everything as the last one left it.
update pgflowd.schema_history
   set release = <release>, applied_at = default, applied_by = default, server = default
 where objects is not null;
