-- Migration 0040: pages of lists. A released migration never changes.

-- it has been taken apart
drop function if exists pgflowd._list_runs(text, text[], interval, int, jsonb, boolean);
-- it takes more now
drop function if exists pgflowd.run_troubles(uuid, timestamptz);
