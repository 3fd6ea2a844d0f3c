"""With pgmq.enable_notify_insert each send locks a row of its queue: queues come in one order."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.covers import covers

from pgflowd.testing.until import until


@covers("database 23")
@pytest.mark.parametrize("flows", [["f", "g"], ["g", "f"], ["a", "g", "z"], ["z", "g", "a"]])
def test_a_report_of_several_flows_sends_in_the_order_of_their_queues(shared, flows):
    reports = []
    for flow in flows:
        shared.flow(flow, "a", "b: a")
        shared.do("select pgmq.enable_notify_insert(%s, 0)", flow)
        run = shared.start(flow)
        worker = shared.worker(flow)
        (task,) = shared.rows("select * from pgflowd.claim(%s, %s, 1)", flow, worker)
        reports.append(
            {
                "run_id": str(run),
                "step_slug": "a",
                "task_index": 0,
                "token": task["token"],
                "outcome": "completed",
            }
        )
    first, *later = sorted(flows)
    blocker, reporter, starter = (shared.session() for _ in range(3))
    blocker.do("select from pgmq.notify_insert_throttle where queue_name = %s for update", first)
    pid = reporter.value("select pg_backend_pid()")

    with ThreadPoolExecutor(1) as threads:
        query = "select verdict from pgflowd.report(%s::jsonb, %s::text[])"
        reporting = threads.submit(reporter.rows, query, json.dumps(reports), ["1"] * len(flows))
        try:
            until(lambda: shared.value("select cardinality(pg_blocking_pids(%s)) > 0", pid))
            starter.do("set local lock_timeout = '2s'")
            for flow in later:
                starter.start(flow)
        finally:
            starter.conn.rollback()
            blocker.conn.rollback()
        assert [row["verdict"] for row in reporting.result(20)] == ["completed"] * len(flows)
