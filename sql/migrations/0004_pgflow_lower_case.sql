-- Migration 0004: queue names and slugs that differ in case only do not depend on the locale of
-- the database. A migration never changes.
-- A generated column cannot change its expression, so it is made anew, which rewrites the table.
-- Where the locale has the same lower case as "C" the values are right already, and a large table
-- keeps its column.

drop index if exists pgflow.flows_lower_flow_slug_key;
create unique index flows_lower_flow_slug_key on pgflow.flows (lower(flow_slug collate "C"));

alter table pgflow.steps drop column queue_name;
alter table pgflow.steps
  add column queue_name text not null generated always as (lower(flow_slug collate "C")) stored;

do $$
begin
  if lower('I') <> lower('I' collate "C")
     or not exists (select from pgflow.step_tasks offset 100000) then
    alter table pgflow.step_tasks drop column queue_name;
    alter table pgflow.step_tasks
      add column queue_name text not null generated always as (lower(flow_slug collate "C")) stored;
  end if;
  -- Queues that had the other name get the right one. Tasks that waited in the old one are queued
  -- tasks without a message.
  perform pgmq.create(right_name.it)
     from pgflow.flows as flow
    cross join lateral (select lower(flow.flow_slug collate "C") as it) as right_name
    where lower(flow.flow_slug) <> right_name.it
      and to_regclass(format('pgmq.%I', 'q_' || right_name.it)) is null;
end
$$;
