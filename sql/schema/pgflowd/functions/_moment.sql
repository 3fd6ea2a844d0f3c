-- _moment(): returns when what this transaction reports has happened: its now(), unless a runner has
-- set pgflowd.moment. A runner completes its task in the transaction of its handler, whose now() is
-- when the handler executed its first statement. Callers' queries inline it.
-- Called by: _close_attempts, news.   Locks: nothing.
create or replace function pgflowd._moment()
returns timestamptz language sql stable
return coalesce(nullif(current_setting('pgflowd.moment', true), '')::timestamptz, now());
