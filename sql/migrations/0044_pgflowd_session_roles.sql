-- Migration 0044: which role of the server acted, beside who it says it was. A released migration never changes.

alter table pgflowd.actions add column if not exists session_role text;
alter table pgflowd.actions alter column session_role set default session_user;
alter table pgflowd.signals add column if not exists session_role text;
alter table pgflowd.signals alter column session_role set default session_user;
