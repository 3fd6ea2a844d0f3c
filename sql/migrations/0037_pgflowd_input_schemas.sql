-- Migration 0037: the JSON Schema of what runs of a flow take. A released migration never changes.

alter table pgflowd.flow_options add column if not exists input_schema jsonb;
