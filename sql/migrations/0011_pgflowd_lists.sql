-- Migration 0011: the lists of flows and steps show what waits. A released migration never
-- changes.
-- Both functions return one more column, so they are made anew.

drop function if exists pgflowd.list_flows();
drop function if exists pgflowd.run_steps(uuid);
