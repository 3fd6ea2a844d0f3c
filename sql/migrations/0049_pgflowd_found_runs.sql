-- Migration 0049: runs by their key and by values of their input. A released migration never changes.

-- they have more arguments now
drop function if exists pgflowd.search_runs(text, text[], timestamptz, timestamptz, jsonb, text, boolean,
                                            timestamptz, uuid, int, int);
drop function if exists pgflowd.count_runs(text, text[], timestamptz, timestamptz, jsonb, text, boolean,
                                           int, int);
drop function if exists pgflowd._found_runs(text, text[], timestamptz, timestamptz, jsonb, text, boolean,
                                            timestamptz, uuid, int, int);
drop function if exists pgflowd._is_sought(uuid, text, jsonb, text);
