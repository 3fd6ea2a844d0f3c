"""
Races: two sessions meet over one task, and exactly one wins; the loser changed nothing.
"""

from __future__ import annotations

import psycopg
import pytest
from support.covers import covers
from support.leases import Connection, LeaseDatabase, element


def test_two_reports_of_one_attempt_record_it_once(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))

    first = db.connect()
    with first.transaction():
        assert db.complete(task, "first", first) == "completed"
        second = db.meanwhile(lambda conn: db.complete(task, "second", conn))

    assert second.result() == "repeated"
    assert db.task(run).output == "first"


def test_a_recovery_passes_over_a_task_that_is_being_reported(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow), lease="0 s")

    first = db.connect()
    with first.transaction():
        db.complete(task, conn=first)
        assert db.recover() == 0

    assert db.status(run) == "completed"


def test_a_report_that_meets_a_recovery_is_lost(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow), lease="0 s")

    first = db.connect()
    with first.transaction():
        assert db.recover(conn=first) == 1
        second = db.meanwhile(lambda conn: db.report(element(task), conn=conn))

    assert second.result()[0].verdict == "lost"
    assert db.task(run).status == "queued"


def test_a_cancel_that_meets_the_last_completion_finds_the_run_ended(
    own: LeaseDatabase,
) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))

    first = db.connect()
    with first.transaction():
        db.complete(task, conn=first)
        second = db.meanwhile(lambda conn: db.cancel(run, conn))

    with pytest.raises(psycopg.Error, match="has ended already") as refused:
        second.result()
    assert refused.value.sqlstate == "PF003"
    assert db.status(run) == "completed"


@pytest.mark.parametrize("batch", [False, True])
def test_the_last_completion_that_meets_a_cancel_is_kept_as_late(
    db: LeaseDatabase, batch: bool
) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))

    def report(conn: Connection) -> str:
        if batch:
            return str(db.report(element(task, output='"late"'), conn=conn)[0].verdict)
        return db.complete(task, "late", conn)

    first = db.connect()
    with first.transaction():
        assert db.cancel(run, first) == "cancelled"
        second = db.meanwhile(report)

    assert second.result() == "late"
    assert db.status(run) == "failed"
    assert db.outcomes(run) == ["late"]
    assert db.value("select output from pgflowd.attempts") == "late"


def test_a_report_that_meets_a_retry_is_late_and_begins_the_task_anew(db: LeaseDatabase) -> None:
    flow = db.flow("a", "b", max_attempts=1)
    run = db.start(flow)
    one, other = sorted(db.claim(flow, db.worker(flow)), key=lambda task: task.step_slug)
    assert db.fail(one) == "failed"

    first = db.connect()
    with first.transaction():
        assert db.retry(run, first) == 2
        second = db.meanwhile(lambda conn: db.report(element(other), conn=conn))

    assert second.result()[0].verdict == "late"
    assert db.outcomes(run, "b") == ["late"]
    assert db.task(run, "b").status == "queued"
    assert len(db.claim(flow, db.worker(flow))) == 2


def test_a_report_that_meets_an_unfenced_one_is_lost(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))

    first = db.connect()
    with first.transaction():
        db.upstream_complete(task, "theirs", first)
        second = db.meanwhile(lambda conn: db.report(element(task), conn=conn))

    assert second.result()[0].verdict == "lost"
    assert db.task(run).output == "theirs"


def test_a_claim_does_not_wait_for_another_claimer_of_its_message(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    worker = db.worker(flow)
    (msg_id,) = db.queue(flow)

    first, second = db.connect(), db.connect()
    second.execute("set lock_timeout = '100ms'")
    with first.transaction():
        first.execute(
            "select from pgflow.step_tasks where message_id = %s for no key update", (msg_id,)
        )
        assert db.claim(flow, worker, conn=second) == []

    assert not db.queue(flow)[msg_id].visible
    db.rows("select pgmq.set_vt(%s, %s, 0)", flow, msg_id)
    assert db.claim_one(flow, worker).run_id == run


def test_two_of_our_claimers_share_the_work(db: LeaseDatabase) -> None:
    flow = db.flow("m*")
    run = db.start(flow, list(range(10)))
    one, other = db.connect(), db.connect()

    with one.transaction(), other.transaction():
        first = db.claim(flow, db.worker(flow), 6, conn=one)
        second = db.claim(flow, db.worker(flow), 6, conn=other)

    assert len(first) == 6
    assert len(second) == 4
    assert {task.task_index for task in first + second} == set(range(10))
    assert db.task(run, "m", 0).attempts_count == 1


def test_a_heartbeat_does_not_wait_for_a_report(db: LeaseDatabase) -> None:
    flow = db.flow()
    db.start(flow)
    worker = db.worker(flow)
    task = db.claim_one(flow, worker)

    first, second = db.connect(), db.connect()
    second.execute("set lock_timeout = '100ms'")
    with first.transaction():
        db.complete(task, conn=first)
        assert db.heartbeat(worker, task, conn=second) == ["ok"]

    assert db.heartbeat(worker, task) == ["lost"]


def test_a_report_whose_connection_dies_before_the_commit_is_sent_again(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))

    dying = db.connect()
    with pytest.raises(psycopg.OperationalError), dying.transaction():
        db.complete(task, conn=dying)
        db.rows("select pg_terminate_backend(%s)", dying.info.backend_pid)
        dying.execute("select 1")

    assert db.complete(task) == "completed"
    assert db.outcomes(run) == db.kept("completed")


def test_a_claim_that_was_rolled_back_left_nothing(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)

    dying = db.connect()
    with dying.transaction(force_rollback=True):
        assert len(db.claim(flow, db.worker(flow), conn=dying)) == 1

    assert db.outcomes(run) == []
    assert db.claim_one(flow, db.worker(flow)).attempt == 1


FREEZE = "update pgflow.workers set last_heartbeat_at = now() - interval '9 days'"
PRUNE = "select pgflow.prune_data_older_than(interval '5 days')"


@covers("database 22")
def test_a_worker_that_is_being_pruned_claims_nothing_and_is_told_at_once(
    own: LeaseDatabase,
) -> None:
    flow = own.flow(max_attempts=9)
    run = own.start(flow)
    worker = own.worker(flow)
    own.fail(own.claim_one(flow, worker), delay="0 s")
    own.do("update pgflow.step_tasks set last_worker_id = null")
    own.do(FREEZE)
    own.do("set lock_timeout = '1s'")

    first = own.connect()
    with first.transaction():
        first.execute(PRUNE)
        with pytest.raises(psycopg.Error, match="there is no worker") as refused:
            own.claim(flow, worker)

    assert refused.value.sqlstate == "PF002"
    assert own.column("select * from pgflow.workers") == []
    assert own.complete(own.claim_one(flow, own.worker(flow))) == "completed"
    assert own.status(run) == "completed"


@covers("database 22")
@pytest.mark.parametrize("named", [True, False])
def test_a_worker_that_was_frozen_and_claims_is_not_pruned(own: LeaseDatabase, named: bool) -> None:
    flow = own.flow(max_attempts=9)
    own.start(flow)
    worker = own.worker(flow)
    own.fail(own.claim_one(flow, worker), delay="0 s")  # its task goes on naming the worker
    if not named:
        own.do("update pgflow.step_tasks set last_worker_id = null")
    own.do(FREEZE)
    own.do("set lock_timeout = '1s'")

    first = own.connect()
    with first.transaction():
        (task,) = own.claim(flow, worker, conn=first)
        own.do(PRUNE)

    assert own.heartbeat(worker, task) == ["ok"]
    assert own.complete(task) == "completed"
    assert own.column("select worker_id from pgflow.workers") == [worker]
