-- Migration 0043: who is paused is out of the line of a limit. A released migration never changes.

alter table pgflowd.waits add column if not exists is_paused boolean not null default false;
update pgflowd.waits as wait set is_paused = true
 where wait.kind = 'limit'
   and exists (select from pgflowd.runs as run
                where run.run_id = wait.run_id and run.paused_at is not null);
drop index if exists pgflowd.waits_limit;
create index if not exists waits_limit
  on pgflowd.waits (name, flow_slug, nr) where kind = 'limit' and not is_paused;
-- it takes more now
drop function if exists pgflowd._next_waiter(text);
