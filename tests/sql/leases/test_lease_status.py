"""
Views for `pgflowd status`: what each flow has to do, and what each worker holds.
"""

from __future__ import annotations

from support.leases import LeaseDatabase


def test_flow_status_counts_what_is_at_work_ready_and_delayed(own: LeaseDatabase) -> None:
    db = own
    flow, idle = db.flow("m*"), db.flow()
    db.start(flow, [1, 2, 3, 4, 5])
    worker = db.worker(flow)
    tasks = db.claim(flow, worker, 3)
    db.release(tasks[0], delay="1 hour")

    rows = db.rows("select * from pgflowd.flow_status")
    status = {row.flow_slug: row for row in rows}

    assert status[flow][1:4] == (2, 2, 1)
    assert 0 <= status[flow].oldest_queued_s < 60
    assert tuple(status[idle])[1:] == (0, 0, 0, None, 0)


def test_flow_status_outlives_a_queue(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.do("select pgmq.drop_queue(%s)", flow)

    assert own.row("select queued from pgflowd.flow_status").queued == 0


def test_worker_status_counts_what_each_worker_holds(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("m*")
    db.start(flow, [1, 2, 3])
    busy, idle = db.worker(flow), db.worker(flow)
    db.claim(flow, busy, 2)
    db.do("update pgflow.workers set deprecated_at = now() where worker_id = %s", idle)

    rows = db.rows("select worker_id, running, is_deprecated from pgflowd.worker_status")

    assert {tuple(row) for row in rows} == {(busy, 2, False), (idle, 0, True)}


def test_attempt_history_shows_which_attempts_are_live(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("a", "b")
    db.start(flow)
    one, other = db.claim(flow, db.worker(flow))
    db.complete(one)

    rows = db.rows("select token, live, outcome from pgflowd.attempt_history")

    assert {tuple(row) for row in rows} == {
        (one.token, False, "completed"),
        (other.token, True, None),
    }
