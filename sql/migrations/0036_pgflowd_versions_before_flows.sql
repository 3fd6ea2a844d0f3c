-- Migration 0036: the row of a version is made before its flow. A released migration never changes.

alter table pgflowd.versions alter constraint versions_flow_fkey deferrable initially deferred;
