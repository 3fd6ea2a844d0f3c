-- Migration 0048: the titles of runs in lists. A released migration never changes.

-- their rows have one more column now
drop function if exists pgflowd.list_inbox(int);
drop function if exists pgflowd.list_runs(text, text[], interval, int, jsonb, boolean);
drop function if exists pgflowd._listed_runs(uuid[]);
drop function if exists pgflowd.list_tasks(uuid, text, text[], int, text[]);
drop function if exists pgflowd.runs_by_id(uuid[]);
drop function if exists pgflowd.search_runs(text, text[], timestamptz, timestamptz, jsonb, text, boolean,
                                            timestamptz, uuid, int, int);
