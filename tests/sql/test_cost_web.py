"""
What the dashboard and KEDA read at a million runs, in pages: no query grows with the history.

Each looks at so many runs, whatever it finds: where nothing fits, of a flow whose runs are all old,
with statistics and without, and where 20,000 runs began at the same moment. `test_growth.py` counts
what starts, claims and reports read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from uuid import UUID

import psycopg
import pytest
from support.covers import covers
from support.database import Connection

from pgflowd.core.documents.runs import PageKey
from pgflowd.core.run_filter import RunFilter
from pgflowd.core.wishes import Moment
from pgflowd.db.daemons import list_daemons
from pgflowd.db.flows import flow_buckets, flow_grid, flow_stats, list_flows, overview_counts
from pgflowd.db.query import Query, execute
from pgflowd.db.run_details import count_runs, run_tasks, runs_by_id, search_runs, step_strip
from pgflowd.db.runs import failed_attempts, kept, run_progress, run_steps, value_part
from pgflowd.db.waits import stalled_tasks
from pgflowd.testing.scratch import ScratchServer

RUNS = 1_000_000
MAP, LARGE = UUID(int=1), UUID(int=2)
MIDDLE = datetime(2026, 1, 5, tzinfo=UTC)
FILL = f"""
select pgflow.create_flow(flow), pgflow.add_step(flow, 'a', step_type => 'map')
  from unnest('{{many,rare}}'::text[]) as flow;
do $$ declare filled regclass; begin  -- else statistics are of any moment while they are filled
  foreach filled in array '{{pgflow.runs,pgflow.step_states,pgflow.step_tasks,pgflowd.runs,
                            pgflowd.attempts,pgmq.q_many}}'::regclass[] loop
    execute format('alter table %s set (autovacuum_enabled = off)', filled);
  end loop;
end $$;
set session_replication_role = replica;
insert into pgflow.runs (run_id, flow_slug, status, input, started_at, completed_at, failed_at,
                         error_message)
  select (lpad(to_hex(1767225600000 + n * 1000), 12, '0') || '7' || right(md5(n::text), 19))::uuid,
         'many', case when n % 50 = 0 then 'failed' else 'completed' end, '{{}}', at,
         case when n % 50 > 0 then at end, case when n % 50 = 0 then at end,
         case when n % 50 = 0 then 'ValueError: ' || n end
    from generate_series(1, {RUNS}) as n
   cross join lateral (select timestamptz '2026-01-01Z' + least(n, {RUNS} - 20000)
                              * interval '1 s' as at) as moment;
insert into pgflow.runs (run_id, flow_slug, status, input, started_at, completed_at)
  select gen_random_uuid(), 'rare', 'completed', '{{}}', moment, moment
    from generate_series(timestamptz '2025-06-01', '2025-06-30', '1 day') as moment;
insert into pgflowd.runs (run_id, flow_slug, created_at, labels)
  select run_id, flow_slug, started_at, '{{"env": "prod"}}' from pgflow.runs
   order by started_at desc limit 50000;
insert into pgflowd.runs (run_id, flow_slug, created_at, labels)
  select run_id, flow_slug, started_at, '{{"customer": "42"}}' from pgflow.runs
   where flow_slug = 'rare' limit 3;
insert into pgflowd.runs (run_id, flow_slug, state, input, created_at, cancelled_at)
  select gen_random_uuid(), 'many', 'ended', '1', timestamptz '2026-01-01Z' + n * interval '1 s',
         now()
    from generate_series(1, 30000) as n;
insert into pgflow.runs (run_id, flow_slug, input, started_at) values
  ('{MAP}', 'many', '[]', '2026-01-13Z'), ('{LARGE}', 'many', (
    select jsonb_agg(md5(n::text)) from generate_series(1, 200000) as n), '2026-01-13Z');
insert into pgflow.step_states (flow_slug, run_id, step_slug, status, remaining_tasks,
                                initial_tasks, started_at)
  values ('many', '{MAP}', 'a', 'started', 10000, 30000, now());
insert into pgflow.step_tasks (flow_slug, run_id, step_slug, message_id, task_index, status,
                               attempts_count, started_at, completed_at, failed_at)
  select 'many', '{MAP}', 'a', n, n, status, 1, now(), case status when 'completed' then now() end,
         case status when 'failed' then now() end
    from generate_series(0, 29999) as n
   cross join lateral (select case when n >= 20000 then 'queued' when n % 100 = 0 then 'failed'
                                   else 'completed' end as status) as one;
insert into pgflowd.attempts (run_id, step_slug, task_index, flow_slug, worker_id, attempt,
                              lease_until, ended_at, outcome)
  select '{MAP}', 'a', n, 'many', gen_random_uuid(), 1, now(), now(),
         case when n % 100 = 0 then 'failed' else 'completed' end
    from generate_series(0, 19999) as n;
reset session_replication_role;
"""
FULL = """
insert into pgmq.q_many (msg_id, vt, message) overriding system value
  select n, now() + case when n < 30000 then interval '1 h' else interval '-1 h' end, '{}'
    from generate_series(0, 99999) as n;
"""
OPEN_TASKS = Query("select pgflowd.open_tasks(%s)", [["many", "rare"]], lambda rows: rows[0][0])
AT_ONCE = datetime(2026, 1, 12, 8, 13, 20, tzinfo=UTC)  # when the newest 20,000 began
UNTIL = PageKey(MIDDLE, UUID(int=2**128 - 1))
QUERIES: Mapping[str, tuple[Query[object], int]] = {
    "the newest runs": (search_runs(RunFilter()), 3_000),
    "the next page": (search_runs(RunFilter(), after=UNTIL), 2_000),
    "a page of runs that began at once": (
        search_runs(RunFilter(), after=PageKey(AT_ONCE, UUID(int=2**127))),
        3_000,
    ),
    "up to a moment": (search_runs(RunFilter(until=Moment(MIDDLE))), 2_000),
    "runs of a flow": (search_runs(RunFilter("many")), 3_000),
    "runs of a rare flow": (search_runs(RunFilter("rare")), 1_500),
    "of a rare flow with a status": (search_runs(RunFilter("rare", ["failed"])), 1_000),
    "runs of an unknown flow": (search_runs(RunFilter("unknown")), 200),
    "a status that none has": (search_runs(RunFilter(statuses=["undone"])), 90_000),
    "failed runs": (search_runs(RunFilter(statuses=["failed"])), 4_000),
    "waiting runs": (search_runs(RunFilter(statuses=["waiting"])), 200),
    "a text that none has": (search_runs(RunFilter(text="no such text")), 90_000),
    "an id": (search_runs(RunFilter(text=str(MAP))), 300),
    "a rare label": (search_runs(RunFilter(labels={"customer": "42"})), 1_000),
    "a common label": (search_runs(RunFilter(labels={"env": "prod"})), 6_000),
    "a label that none has": (search_runs(RunFilter(labels={"env": "dev"})), 1_000),
    "a number of all": (count_runs(RunFilter()), 9_000),
    "a number of failed ones": (count_runs(RunFilter(statuses=["failed"])), 4_000),
    "rows by their ids": (runs_by_id([MAP] * 50), 3_000),
    "a step of a map": (run_steps(MAP), 4_000),
    "progress": (run_progress(MAP), 100),
    "tasks": (run_tasks(MAP, "a", [], -1, 50), 2_000),
    "failed tasks": (run_tasks(MAP, "a", ["failed"], -1, 50), 4_000),
    "tasks with a status that none has": (run_tasks(MAP, "a", ["lapsed"], -1, 50), 3_000),
    "a strip": (step_strip(MAP, "a"), 3_000),
    "troubles": (failed_attempts(MAP, most=20), 2_500),
    "a part of a value": (value_part(LARGE, what="input", start=100_000), 3_000),
    "a grid": (flow_grid("many"), 1_500),
    "a grid of a rare flow": (flow_grid("rare"), 1_500),
    "statistics": (flow_stats("many", 86400), 300),
    "pieces of a time": (flow_buckets("many", 90 * 86400, 1440), 300),
    "flows": (list_flows(), 1_500),
    "daemons": (list_daemons(), 500),
    "sizes": (kept(), 300),
    "counts": (overview_counts(), 3_000),
    "stalled tasks": (stalled_tasks(60.0), 90_000),  # of ten thousand whose messages are gone
}


def pages(conn: Connection, query: Query[object]) -> int:
    """The pages that it reads at its second time in this session, of tables and indexes alike."""
    statement = f"explain (analyze, buffers, timing off, format json) {query.sql}".encode()
    for _ in range(2):
        ((plan,),) = conn.execute(statement, query.params).fetchall()
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


@covers("database 13")
@pytest.mark.parametrize("major", [15, 18])
def test_no_query_of_the_dashboard_grows_with_a_million_runs(
    server_of: Callable[[int], ScratchServer], major: int
) -> None:
    with (
        server_of(major).database() as database,
        psycopg.connect(database.dsn, autocommit=True) as conn,
    ):
        conn.execute(FILL.encode())
        found = {}
        for state in ("without", "with"):
            for name, (query, most) in QUERIES.items():
                if (read := pages(conn, query)) > most:
                    found[f"{name}, {state} statistics"] = (read, most)
            conn.execute(FULL.encode())
            assert execute(conn, OPEN_TASKS) == 10_000
            if (read := pages(conn, OPEN_TASKS)) > 40_000:  # of a queue that is full
                found[f"open tasks, {state} statistics"] = (read, 40_000)
            conn.execute("truncate pgmq.q_many")
            conn.execute("analyze pgflow.runs, pgflowd.runs, pgflow.step_tasks")

    assert found == {}
