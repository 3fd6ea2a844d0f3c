-- _is_sought(run_id, error_message, labels, title, search): whether this text, in lower case, is in the error
-- of a run, in its title, or in the names and values of its labels (also as name=value), or is the begin or
-- end of its id, at least four digits. Queries inline it, so it has no settings of its own.
-- Called by: _found_runs.   Locks: nothing.
create or replace function pgflowd._is_sought(
  run_id uuid, error_message text, labels jsonb, title text, search text)
returns boolean language sql immutable
return coalesce(strpos(lower(error_message), search), 0) > 0
         or coalesce(strpos(lower(title), search), 0) > 0
         or coalesce(strpos(lower(labels::text),
                            replace(replace(search, '\', '\\'), '"', '\"')), 0) > 0
         or coalesce(strpos(lower(labels::text),
                            replace(replace(replace(search, '\', '\\'), '"', '\"'), '=', '": "')),
                     0) > 0
         or replace(search, '-', '') ~ '^[0-9a-f]{4,32}$'
            and (right(replace(run_id::text, '-', ''), length(replace(search, '-', '')))
                   = replace(search, '-', '')
                 or starts_with(replace(run_id::text, '-', ''), replace(search, '-', '')));
