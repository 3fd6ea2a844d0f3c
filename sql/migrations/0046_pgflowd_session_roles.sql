-- Migration 0046: the role of the session beside each actor. A released migration never changes.

alter table pgflowd.actions add column if not exists session_role text;
alter table pgflowd.actions alter column session_role set default session_user;
alter table pgflowd.signals add column if not exists session_role text;
alter table pgflowd.signals alter column session_role set default session_user;
drop function if exists pgflowd.list_signals(uuid, boolean, int);  -- its rows have one more column now
