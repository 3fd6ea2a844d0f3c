-- _is_repeat(attempt, outcome): whether this is the report that closed the attempt.
-- A completion may have become late, or failed by its type; any other report late; and one that
-- was wanted unspent may have failed.
-- Called by: _with_standings.   Locks: nothing.
create or replace function pgflowd._is_repeat(attempt pgflowd.attempts, outcome text)
returns boolean language sql immutable
return coalesce((attempt).outcome = outcome
    or ((attempt).outcome = 'late')
    or (outcome = 'completed' and (attempt).outcome = 'failed'
        and (attempt).error_message like '[TYPE_VIOLATION]%')
    or (outcome = 'released' and (attempt).outcome = 'failed'
        and (attempt).error_type = 'RetryAfter'), false);
