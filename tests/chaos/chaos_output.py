"""
The chaos of progress and output: each handler tells and prints the token of its own attempt.

So whatever was killed, frozen or cut, no attempt may have what another one told or printed.
"""

from __future__ import annotations

from typing import Any

import psycopg

TOLD = r"""
select 'progress of another attempt', run_id::text, step_slug, task_index, token
  from pgflowd.attempts where progress ->> 'text' <> token::text
union all
select 'output of another attempt', run_id::text, step_slug, task_index, token
  from pgflowd.attempts
 cross join lateral regexp_matches(printed, '^\S+ stdout (\d+) ticks$', 'gn') as line
 where line[1] <> token::text
union all
select 'lines that are not counted', run_id::text, step_slug, task_index, token
  from pgflowd.attempts
 where (printed is null) <> (printed_lines is null)
    or printed_lines > length(printed) - length(replace(printed, E'\n', ''))
"""
SHOWN = 5


def troubles(conn: psycopg.Connection[Any]) -> list[str]:
    """What attempts have that is not theirs."""
    return [str(tuple(row)) for row in conn.execute(TOLD.encode()).fetchmany(SHOWN)]
