"""
Time: leases last by the server's clock, rows by the transaction's, and neither trips the other.
"""

from __future__ import annotations

import pytest
from support.covers import covers
from support.leases import LeaseDatabase


def test_a_claim_skips_a_task_queued_after_its_transaction_began(db: LeaseDatabase) -> None:
    flow = db.flow()
    worker = db.worker(flow)
    older = db.connect()

    with older.transaction():
        older.execute("select now()")
        run = db.start(flow)
        assert db.claim(flow, worker, conn=older) == []

    (message,) = db.queue(flow).values()
    assert message.visible
    assert db.claim_one(flow, worker).run_id == run


def test_the_claim_in_a_reports_transaction_sees_what_the_report_made_ready(
    db: LeaseDatabase,
) -> None:
    flow = db.flow("a", "b:a", "c:b")
    db.start(flow)
    worker = db.worker(flow)
    conn = db.connect()
    (task,) = db.claim(flow, worker)

    trips = 1
    while task is not None:
        with conn.transaction():
            db.complete(task, conn=conn)
            task = next(iter(db.claim(flow, worker, conn=conn)), None)
        trips += 1

    assert trips == 4


def test_a_completion_older_than_a_heartbeat_passes(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    worker = db.worker(flow)
    task = db.claim_one(flow, worker)
    db.age(task, "1 minute")
    older = db.connect()

    with older.transaction():
        older.execute("select now()")
        assert db.heartbeat(worker, task) == ["ok"]
        assert db.complete(task, conn=older) == "completed"

    assert db.status(run) == "completed"


def test_a_completion_shows_when_the_attempt_began_and_not_its_last_heartbeat(
    db: LeaseDatabase,
) -> None:
    flow = db.flow()
    run = db.start(flow)
    worker = db.worker(flow)
    task = db.claim_one(flow, worker)
    db.age(task, "1 hour")
    began = db.task(run).started_at

    db.heartbeat(worker, task)
    assert db.task(run).started_at > began
    db.complete(task)

    assert db.task(run).started_at == began


def test_a_heartbeat_never_shortens(db: LeaseDatabase) -> None:
    flow = db.flow()
    db.start(flow)
    worker = db.worker(flow)
    task = db.claim_one(flow, worker, lease="1 hour")
    before = (
        db.value("select lease_until from pgflowd.attempts"),
        db.queue(flow)[task.msg_id].vt,
    )

    assert db.heartbeat(worker, task, lease="1 s") == ["ok"]

    after = (
        db.value("select lease_until from pgflowd.attempts"),
        db.queue(flow)[task.msg_id].vt,
    )
    assert after == before


def test_a_heartbeat_extends_lease_and_visibility(db: LeaseDatabase) -> None:
    flow = db.flow()
    db.start(flow)
    worker = db.worker(flow)
    task = db.claim_one(flow, worker, lease="1 s")

    db.heartbeat(worker, task, lease="1 hour")

    later = "lease_until > now() + interval '59 minutes'"
    assert db.value(f"select {later} from pgflowd.attempts")
    lease_until = db.value("select lease_until from pgflowd.attempts")
    assert db.queue(flow)[task.msg_id].vt >= lease_until


def test_a_message_is_hidden_at_least_as_long_as_the_lease_lasts(db: LeaseDatabase) -> None:
    flow = db.flow("a", "b")
    db.start(flow)

    for lease in ("1500 ms", "30 s"):
        task = db.claim_one(flow, db.worker(flow), max_tasks=1, lease=lease)
        assert db.queue(flow)[task.msg_id].vt >= task.lease_until


def test_a_lease_without_heartbeats_lasts_the_timeout_of_the_task(db: LeaseDatabase) -> None:
    flow = db.flow("a", "b", timeout=10)
    db.do(
        "update pgflow.steps set opt_timeout = 100 where flow_slug = %s and step_slug = 'b'", flow
    )
    db.start(flow)

    tasks = db.claim(flow, db.worker(flow), lease=None)

    lasts = {task.step_slug: (task.lease_until - task_started(db, task)) for task in tasks}
    hidden = {task.step_slug: db.queue(flow)[task.msg_id].vt - task.lease_until for task in tasks}
    assert round(lasts["a"].total_seconds()) == 12
    assert round(lasts["b"].total_seconds()) == 102
    assert min(hidden.values()).total_seconds() >= 0


def task_started(db: LeaseDatabase, task: object) -> object:
    return db.task(task.run_id, task.step_slug).started_at  # type: ignore[attr-defined]


@covers("database 24")
@pytest.mark.parametrize("what", ["message", "task"])
def test_what_was_queued_in_the_future_is_hidden_until_then(db: LeaseDatabase, what: str) -> None:
    """As the tables are when the server's clock was set back while a task waited for a retry."""
    flow = db.flow()
    run = db.start(flow)
    worker = db.worker(flow)
    db.fail(db.claim_one(flow, worker), delay="0 s")
    later = "now() + interval '10 minutes'"
    if what == "message":
        db.do(f"update pgmq.q_{flow} set enqueued_at = {later}")
    db.do(f"update pgflow.step_tasks set queued_at = {later}, started_at = null")
    listener = db.connect()
    listener.execute("listen pgflowd")
    (before,) = db.queue(flow).values()
    db.do("select pgflowd.arm(%s, gen_random_uuid())", flow)

    claimed = [db.claim(flow, worker) for _ in range(3)]

    (message,) = db.queue(flow).values()
    if what == "task":
        assert len(claimed[0]) == 1, "its message says that it may be claimed"
    else:
        assert claimed == [[], [], []]
        assert message.read_ct == before.read_ct + 1, "it is read once, and no more"
        assert message.vt == (message.enqueued_at if what == "message" else db.task(run).queued_at)
        assert list(listener.notifies(timeout=0)) == []
    db.do(f"update pgmq.q_{flow} set enqueued_at = now(), vt = now()")
    db.do("update pgflow.step_tasks set status = 'queued', queued_at = now(), started_at = null")
    assert db.claim(flow, worker)
