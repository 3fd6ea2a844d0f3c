"""
Races: two sessions meet over one task, and exactly one wins; the loser changed nothing.
"""

from __future__ import annotations

import psycopg
import pytest
from support.leases import Connection, House, element


def test_two_reports_of_one_attempt_record_it_once(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow))

    first = house.connect()
    with first.transaction():
        assert house.complete(task, "first", first) == "completed"
        second = house.meanwhile(lambda conn: house.complete(task, "second", conn))

    assert second.result() == "repeated"
    assert house.task(run).output == "first"


def test_a_recovery_passes_over_a_task_that_is_being_reported(house: House) -> None:
    flow = house.flow()
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow), lease="0 s")

    first = house.connect()
    with first.transaction():
        house.complete(task, conn=first)
        assert house.recover() == 0

    assert house.run_status(run) == "completed"


def test_a_report_that_meets_a_recovery_is_lost(house: House) -> None:
    flow = house.flow()
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow), lease="0 s")

    first = house.connect()
    with first.transaction():
        assert house.recover(conn=first) == 1
        second = house.meanwhile(lambda conn: house.report(element(task), conn=conn))

    assert second.result()[0].verdict == "lost"
    assert house.task(run).status == "queued"


def test_a_cancel_that_meets_the_last_completion_finds_the_run_ended(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow))

    first = house.connect()
    with first.transaction():
        house.complete(task, conn=first)
        second = house.meanwhile(lambda conn: house.cancel(run, conn))

    with pytest.raises(psycopg.Error, match="has ended already") as refused:
        second.result()
    assert refused.value.sqlstate == "PF003"
    assert house.run_status(run) == "completed"


@pytest.mark.parametrize("batch", [False, True])
def test_the_last_completion_that_meets_a_cancel_is_kept_as_late(house: House, batch: bool) -> None:
    flow = house.flow()
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow))

    def report(conn: Connection) -> str:
        if batch:
            return str(house.report(element(task, output='"late"'), conn=conn)[0].verdict)
        return house.complete(task, "late", conn)

    first = house.connect()
    with first.transaction():
        assert house.cancel(run, first) == "cancelled"
        second = house.meanwhile(report)

    assert second.result() == "late"
    assert house.run_status(run) == "failed"
    assert house.outcomes(run) == ["late"]
    assert house.value("select output from pgflowd.attempts") == "late"


def test_a_report_that_meets_a_retry_is_lost(house: House) -> None:
    flow = house.flow("a", "b", max_attempts=1)
    run = house.start(flow)
    one, other = sorted(house.claim(flow, house.worker(flow)), key=lambda task: task.step_slug)
    assert house.fail(one) == "failed"

    first = house.connect()
    with first.transaction():
        assert house.retry(run, first) == 2
        second = house.meanwhile(lambda conn: house.report(element(other), conn=conn))

    assert second.result()[0].verdict == "lost"
    assert house.outcomes(run, "b") == ["lost"]
    assert house.task(run, "b").status == "queued"


def test_a_report_that_meets_an_unfenced_one_is_lost(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow))

    first = house.connect()
    with first.transaction():
        house.upstream_complete(task, "theirs", first)
        second = house.meanwhile(lambda conn: house.report(element(task), conn=conn))

    assert second.result()[0].verdict == "lost"
    assert house.task(run).output == "theirs"


def test_a_claim_does_not_wait_for_another_claimer_of_its_message(house: House) -> None:
    flow = house.flow()
    run = house.start(flow)
    worker = house.worker(flow)
    (msg_id,) = house.queue(flow)

    first, second = house.connect(), house.connect()
    second.execute("set lock_timeout = '100ms'")
    with first.transaction():
        first.execute(
            "select from pgflow.step_tasks where message_id = %s for no key update", (msg_id,)
        )
        assert house.claim(flow, worker, conn=second) == []

    assert not house.queue(flow)[msg_id].visible
    house.rows("select pgmq.set_vt(%s, %s, 0)", flow, msg_id)
    assert house.claim_one(flow, worker).run_id == run


def test_two_of_our_claimers_share_the_work(house: House) -> None:
    flow = house.flow("m*")
    run = house.start(flow, list(range(10)))
    one, other = house.connect(), house.connect()

    with one.transaction(), other.transaction():
        first = house.claim(flow, house.worker(flow), 6, conn=one)
        second = house.claim(flow, house.worker(flow), 6, conn=other)

    assert len(first) == 6
    assert len(second) == 4
    assert {task.task_index for task in first + second} == set(range(10))
    assert house.task(run, "m", 0).attempts_count == 1


def test_a_beat_does_not_wait_for_a_report(house: House) -> None:
    flow = house.flow()
    house.start(flow)
    worker = house.worker(flow)
    task = house.claim_one(flow, worker)

    first, second = house.connect(), house.connect()
    second.execute("set lock_timeout = '100ms'")
    with first.transaction():
        house.complete(task, conn=first)
        assert house.beat(worker, task, conn=second) == ["ok"]

    assert house.beat(worker, task) == ["lost"]


def test_a_report_whose_connection_dies_before_the_commit_is_sent_again(house: House) -> None:
    flow = house.flow()
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow))

    dying = house.connect()
    with pytest.raises(psycopg.OperationalError), dying.transaction():
        house.complete(task, conn=dying)
        house.rows("select pg_terminate_backend(%s)", dying.info.backend_pid)
        dying.execute("select 1")

    assert house.complete(task) == "completed"
    assert house.outcomes(run) == house.kept("completed")


def test_a_claim_that_was_rolled_back_left_nothing(house: House) -> None:
    flow = house.flow()
    run = house.start(flow)

    dying = house.connect()
    with dying.transaction(force_rollback=True):
        assert len(house.claim(flow, house.worker(flow), conn=dying)) == 1

    assert house.outcomes(run) == []
    assert house.claim_one(flow, house.worker(flow)).attempt == 1
