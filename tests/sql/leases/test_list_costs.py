"""
Lists read what they show: neither all runs nor a payload, however many there are.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from support.covers import covers
from support.leases import LeaseDatabase
from support.rows_read import rows_read

MANY = 3_000
ENDED = """
insert into pgflow.runs (run_id, flow_slug, status, input, output, started_at, completed_at)
select gen_random_uuid(), %s, 'completed', '{}', '{}', now() - n * interval '1 s', now()
  from generate_series(1, %s) as n
"""
LISTS = [
    ("select * from pgflowd.list_runs()", 200),
    ("select * from pgflowd.list_runs('rare')", 200),
    ("select * from pgflowd.list_runs(null, '{completed}')", 200),
    ("select * from pgflowd.list_runs(null, null, '10 s')", 200),
    ("select * from pgflowd.find_runs('')", 10),
    ("select * from pgflowd.active_runs('rare')", 100),
    ("select * from pgflowd.list_flows()", 200),
]


def filled(db: LeaseDatabase) -> str:
    """A flow with many runs that have ended, and one with three that have not."""
    flow = db.flow()
    db.do("select pgflow.create_flow('rare')")
    db.do("select pgflow.add_step('rare', 'a')")
    for _ in range(3):
        db.start("rare")
    db.do(ENDED, flow, MANY)
    return flow


@covers("database 13")
@pytest.mark.parametrize("is_analysed", [False, True])
def test_lists_do_not_read_all_runs(own: LeaseDatabase, is_analysed: bool) -> None:
    filled(own)
    if is_analysed:
        own.do("analyze")

    with own.conn.transaction():
        found = {query: rows_read(own.conn, query) for query, _ in LISTS}

    assert {query: found[query] for query, most in LISTS if found[query] > most} == {}


@covers("database 13")
def test_lists_by_status_and_short_ids_look_at_the_newest_100_000_runs(own: LeaseDatabase) -> None:
    flow = own.flow()
    oldest = own.start(flow)
    own.do("update pgflow.runs set started_at = '2000-01-01'")
    own.do(ENDED, flow, 100_000)
    queries = [
        "select run_id from pgflowd.list_runs(null, '{started}')",
        f"select run_id from pgflowd.find_runs('{str(oldest)[-8:]}')",
    ]

    with own.conn.transaction():
        for query in queries:
            assert own.rows(query) == []
            assert rows_read(own.conn, query) < 100_100
    assert own.value("select pgflowd.active_runs(%s)", flow) == 1


@covers("database 13")
def test_no_list_status_or_sweep_reads_an_input_or_output(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b:a", max_attempts=1)
    worker = own.worker(flow)
    own.start(flow)
    own.complete(own.claim_one(flow, worker), 1)
    own.complete(own.claim_one(flow, worker), text_of(16_000_000))
    for _ in range(49):
        own.start(flow, text_of(10_000))
    for task in own.claim(flow, worker, max_tasks=49):
        own.complete(task, text_of(10_000))
    at_work, lapsed, failed = own.claim(flow, worker, max_tasks=3)
    own.fail(failed, "boom", retry=False)
    own.lapse(lapsed)
    unleased, *_ = own.upstream_claim(flow, worker)
    own.age(unleased, "1 hour")
    own.set("crash_limit", 1)
    own.do(f"delete from pgmq.q_{flow} where msg_id = (select max(msg_id) from pgmq.q_{flow})")

    for query in (
        "* from pgflowd.list_runs(null, null, null, 50)",
        "* from pgflowd.list_runs(null, '{completed}')",
        "* from pgflowd.find_runs('')",
        "step.* from pgflow.runs as run, pgflowd.run_steps(run.run_id) as step",
        f"* from pgflowd.run_troubles('{failed.run_id}')",
        "* from pgflowd.list_flows()",
        f"pgflowd.active_runs('{flow}')",
        "* from pgflowd.flow_status",
        "* from pgflowd.worker_status",
        "* from pgflowd.stalled_tasks()",
        f"* from pgflowd.heartbeat('{worker}', '{{{at_work.token}}}')",
        "* from pgflowd.sweep()",
        f"* from pgflowd.sweep_dead('{worker}', 'killed')",
        "* from pgflowd.resend(null)",
        "pgflow.requeue_stalled_tasks()",
    ):
        assert toasted(own, f"select {query}") == 0, query

    assert toasted(own, "select output from pgflow.runs") > 1_000
    found = [own.task(task.run_id, "b").status for task in (at_work, lapsed, unleased)]
    assert found == ["failed", "failed", "queued"], "the sweeps had work"
    assert own.rows("select * from pgflowd._without_message(%s)", [failed.run_id]) == []


def text_of(count: int) -> str:
    """A text of that many characters, which cannot be compressed to less than half of it."""
    return os.urandom(count // 2).hex()


def toasted(db: LeaseDatabase, query: str) -> int:
    """The blocks of large values that a statement reads; it may change what it wants to."""
    counted = """
        select coalesce(sum(pg_stat_get_xact_blocks_fetched(part.oid)), 0)
          from pg_class as class
          join pg_index as index on index.indrelid = class.reltoastrelid
         cross join unnest(array[class.reltoastrelid, index.indexrelid]) as part (oid)
         where class.relnamespace in ('pgflow'::regnamespace, 'pgflowd'::regnamespace)
    """
    with db.conn.transaction():
        before: Any = db.value(counted)
        db.rows(query)
        return int(db.value(counted) - before)


@covers("newcomer 8")
def test_a_map_of_20_000_is_shown_at_once_in_a_database_that_was_analysed_empty(
    own: LeaseDatabase,
) -> None:
    own.do("vacuum analyze")
    for table in ("pgflow.step_tasks", "pgflowd.attempts"):
        own.do(f"alter table {table} set (autovacuum_enabled = off)")
    flow = own.flow("m*")
    run = own.start(flow, list(range(20_000)))
    own.do("set statement_timeout = '10 s'")
    own.claim(flow, own.worker(flow), max_tasks=20_000)
    own.do("update pgflowd.attempts set ended_at = now(), outcome = 'failed'")
    own.do("update pgflow.step_tasks set status = 'queued', started_at = null")

    with own.conn.transaction():
        read = {
            query: rows_read(own.conn, f"select * from pgflowd.{query}", run)
            for query in ("run_steps(%s)", "run_troubles(%s)", "attempt_history where run_id = %s")
        }

    assert {query: rows for query, rows in read.items() if rows > 100_100} == {}
