"""
Runs and flows that are paused: nothing of them begins, timers stand still, and nothing is lost.
"""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
import pytest
from support.covers import covers
from support.database import Connection
from support.leases import LONG_SLEEP, LeaseDatabase

SIGNAL = {"kind": "signal", "name": "paid", "checkpoint": "signal paid 1"}
PAUSE = "select pgflowd.pause(%s, 'too hot', 'jane')"
RESUME = "select pgflowd.resume(%s)"
WAITS = """
    select step_slug, task_index, kind, due_at is null as stands,
           round(extract(epoch from coalesce(rest, due_at - now())))::int as left_s
      from pgflowd.waits where run_id = %s order by step_slug, task_index
"""


def pause(db: LeaseDatabase, run: uuid.UUID, conn: Connection | None = None) -> str:
    return str(db.value(PAUSE, run, conn=conn))


def resume(db: LeaseDatabase, run: uuid.UUID, conn: Connection | None = None) -> str:
    return str(db.value(RESUME, run, conn=conn))


def waits(db: LeaseDatabase, run: uuid.UUID) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in db.rows(WAITS, run)]


def status(db: LeaseDatabase, run: uuid.UUID) -> str:
    return str(db.value("select status from pgflowd.run_status where run_id = %s", run))


def process(db: LeaseDatabase) -> None:
    while db.value("select done from pgflowd.process_due()"):
        pass


def violated(db: LeaseDatabase) -> set[str]:
    return {row.invariant for row in db.rows("select * from pgflowd.violations()")}


def show(db: LeaseDatabase, flow: str) -> None:
    """Let all messages be visible."""
    for message in db.queue(flow):
        db.value("select pgmq.set_vt(%s, %s::bigint, 0) is null", flow, message)


def task_statuses(db: LeaseDatabase, run: uuid.UUID) -> list[str]:
    return db.column("select status from pgflowd.list_tasks(%s) order by step_slug", run)


@covers("G19")
def test_nothing_of_a_paused_run_begins_until_it_is_resumed(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b", "c:a+b")
    run, other, worker = own.start(flow), own.start(flow), own.worker(flow)
    first = own.claim_one(flow, worker, max_tasks=1)
    assert first.run_id == run

    assert (pause(own, run), pause(own, run)) == ("paused", "repeated")

    assert status(own, run) == "paused"
    assert {task.run_id for task in own.claim(flow, worker)} == {other}
    assert own.claim(flow, worker) == own.upstream_claim(flow, worker) == []
    assert own.complete(first) == "completed"
    assert own.claim(flow, worker) == []
    assert sorted(task_statuses(own, run)) == ["paused"]
    assert violated(own) == set()

    assert (resume(own, run), resume(own, run)) == ("resumed", "repeated")

    assert status(own, run) == "started"
    again = own.claim_one(flow, worker)
    assert (again.run_id, again.attempt, again.waited_s < 5) == (run, 1, True)
    own.complete(again)
    own.complete(own.claim_one(flow, worker))
    assert status(own, run) == "completed"


def test_who_paused_a_run_and_why_is_kept_until_the_resume(own: LeaseDatabase) -> None:
    run = own.start(own.flow())
    asked = "select paused_by, pause_reason, paused_at <= clock_timestamp() from pgflowd.run_status"
    pause(own, run)
    assert tuple(own.row(asked)) == ("jane", "too hot", True)
    resume(own, run)
    assert tuple(own.row(asked)) == (None, None, None)


@covers("G19")
@pytest.mark.parametrize("wait", [LONG_SLEEP, SIGNAL | {"in_s": 3600}])
def test_the_time_of_each_wait_stands_still(own: LeaseDatabase, wait: dict[str, Any]) -> None:
    flow = own.flow("a", "b")
    run, worker = own.start(flow), own.worker(flow)
    before, during = own.claim(flow, worker)
    own.suspend(before, wait)
    pause(own, run)
    own.suspend(during, wait)
    assert waits(own, run) == [
        ("a", 0, wait["kind"], True, 3600), ("b", 0, wait["kind"], True, 3600),
    ]  # fmt: skip
    own.do("update pgflowd.waits set rest = rest - interval '10 minutes'")
    process(own)
    assert violated(own) == set()

    resume(own, run)

    assert waits(own, run) == [
        ("a", 0, wait["kind"], False, 3000), ("b", 0, wait["kind"], False, 3000),
    ]  # fmt: skip
    own.do("update pgflowd.waits set due_at = now()")
    process(own)
    assert len(own.claim(flow, worker)) == 2


def test_a_wait_without_an_end_has_none_after_the_resume_either(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b")
    run, worker = own.start(flow), own.worker(flow)
    before, during = own.claim(flow, worker)
    own.suspend(before, SIGNAL)
    pause(own, run)
    own.suspend(during, SIGNAL)
    resume(own, run)
    assert waits(own, run) == [(step, 0, "signal", True, None) for step in ("a", "b")]


def test_a_task_that_was_handed_on_is_taken_after_the_resume_only(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b")
    run, other, worker = own.start(flow), own.start(flow), own.worker(flow)
    for task in own.claim(flow, worker):
        own.suspend(task, {"kind": "need", "needs": ["gpu"]})
    pause(own, run)
    claim = "select * from pgflowd.claim(%s, %s, 9, caps => array['gpu'])"
    assert {task.run_id for task in own.rows(claim, flow, worker)} == {other}
    assert [wait[2] for wait in waits(own, run)] == ["need", "need"]
    resume(own, run)
    assert {task.run_id for task in own.rows(claim, flow, worker)} == {run}


def test_the_delay_of_a_retry_stands_still(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b", base_delay=0)
    run, worker = own.start(flow), own.worker(flow)
    first, second = own.claim(flow, worker)
    own.fail(first, delay="1 h")
    pause(own, run)
    own.fail(second, delay="1 h")  # its message is still hidden when the claim looks
    assert own.claim(flow, worker) == []
    assert waits(own, run) == [("a", 0, "paused", True, 3600)]

    resume(own, run)

    assert waits(own, run) == [("a", 0, "sleep", False, 3600)]
    assert own.task(run, "a").attempts_count == 1
    own.do("update pgflowd.waits set due_at = now()")
    process(own)
    assert own.claim_one(flow, worker).attempt == 2
    assert own.column("select name from pgflowd.checkpoints") == []


def test_a_wait_that_is_due_when_the_run_is_paused_is_due_at_the_resume(
    own: LeaseDatabase,
) -> None:
    flow = own.flow()
    run, worker = own.start(flow), own.worker(flow)
    own.suspend(own.claim_one(flow, worker))
    own.do("update pgflowd.waits set due_at = now() - interval '1 minute'")
    pause(own, run)
    process(own)
    assert waits(own, run) == [("a", 0, "sleep", True, 0)]

    resume(own, run)
    process(own)

    assert own.claim_one(flow, worker)


def test_a_signal_to_a_paused_run_is_consumed_and_its_task_waits_for_the_resume(
    own: LeaseDatabase,
) -> None:
    flow = own.flow()
    run, worker = own.start(flow), own.worker(flow)
    own.suspend(own.claim_one(flow, worker), SIGNAL | {"in_s": 3600})
    pause(own, run)
    own.value("select pgflowd.signal(%s, 'paid', '12')", run)
    process(own)
    assert waits(own, run) == [("a", 0, "paused", True, None)]
    assert own.value("select data from pgflowd.checkpoints") == {"got": 12}
    assert own.claim(flow, worker) == []
    assert violated(own) == set()

    resume(own, run)

    assert own.claim_one(flow, worker)


def test_a_task_that_is_woken_in_a_paused_run_waits_for_the_resume(own: LeaseDatabase) -> None:
    flow = own.flow()
    run, worker = own.start(flow), own.worker(flow)
    task = own.claim_one(flow, worker)
    own.suspend(task)
    pause(own, run)
    own.value("select pgflowd.task_wake(%s, 'a', 0, 'me', 'now')", run)
    assert waits(own, run) == [("a", 0, "paused", True, None)]
    assert own.claim(flow, worker) == []
    resume(own, run)
    assert own.claim_one(flow, worker)


def test_a_map_that_becomes_ready_meanwhile_is_put_aside_at_once(own: LeaseDatabase) -> None:
    flow = own.flow("a", "m*:a")
    run, worker = own.start(flow), own.worker(flow)
    first = own.claim_one(flow, worker)
    pause(own, run)
    own.complete(first, list(range(200)))
    other = own.start(flow)
    assert [task.run_id for task in own.claim(flow, worker, max_tasks=1)] == [other]
    assert len(waits(own, run)) == 200
    assert len(own.queue(flow)) == 1

    resume(own, run)

    tasks = own.claim(flow, worker, max_tasks=300)
    assert sorted(task.task_index for task in tasks) == list(range(200))


def test_a_run_may_end_while_it_is_paused(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b", max_attempts=1)
    worker = own.worker(flow)
    done, failed, cancelled = (own.start(flow) for _ in range(3))
    tasks = {(task.run_id, task.step_slug): task for task in own.claim(flow, worker, max_tasks=9)}
    own.complete(tasks[done, "a"])
    for run in (done, failed, cancelled):
        pause(own, run)
    own.complete(tasks[done, "b"])
    own.fail(tasks[failed, "a"])
    own.cancel(cancelled)

    assert [status(own, run) for run in (done, failed, cancelled)] == [
        "completed", "failed", "cancelled",
    ]  # fmt: skip
    assert own.rows("select * from pgflowd.waits") == []
    for run in (done, failed, cancelled):
        with pytest.raises(psycopg.Error, match="cannot be paused: it is") as error:
            pause(own, run)
        assert error.value.sqlstate == "PF003"
    assert own.retry(failed) == 2
    assert status(own, failed) == "started"
    assert {task.run_id for task in own.claim(flow, worker, max_tasks=9)} == {failed}
    assert violated(own) == set()


def test_a_paused_run_expires_all_the_same(own: LeaseDatabase) -> None:
    flow = own.flow()
    run = own.value("select run_id from pgflowd.start(%s, '{}', expires_at => now() + '1 h')", flow)
    pause(own, run)
    own.do("update pgflowd.runs set expires_at = now(), due_at = now()")
    process(own)
    assert status(own, run) == "expired"


def test_what_is_unknown_or_has_not_begun_cannot_be_paused(own: LeaseDatabase) -> None:
    flow = own.flow()
    planned = own.value(
        "select run_id from pgflowd.start(%s, '{}', start_at => now() + '1 h')", flow
    )
    for sql, state in (
        (PAUSE, "PF002"), (RESUME, "PF002"), ("select pgflowd.pause_flow(%s)", "PF002"),
        ("select pgflowd.resume_flow(%s)", "PF002"),
    ):  # fmt: skip
        with pytest.raises(psycopg.Error, match="there is no") as error:
            own.value(sql, str(uuid.uuid4()))
        assert error.value.sqlstate == state
    with pytest.raises(psycopg.Error, match="it is scheduled") as error:
        pause(own, planned)
    assert error.value.sqlstate == "PF003"
    assert resume(own, planned) == "repeated"


def test_a_pause_waits_for_a_claim_that_holds_a_task_and_not_the_other_way_round(
    own: LeaseDatabase,
) -> None:
    flow = own.flow("a", "b")
    run, worker = own.start(flow), own.worker(flow)
    claiming = own.connect()
    with claiming.transaction():
        (task,) = own.claim(flow, worker, max_tasks=1, conn=claiming)
        pausing = own.meanwhile(lambda conn: pause(own, run, conn))
    assert pausing.result() == "paused"
    assert waits(own, run) == [("b" if task.step_slug == "a" else "a", 0, "paused", True, 0)]

    resume(own, run)
    with claiming.transaction():
        pause(own, run, claiming)
        assert own.claim(flow, worker) == []  # it has passed over what is locked
    assert own.complete(task) == "completed"
    assert own.claim(flow, worker) == []


def test_a_claim_passes_over_a_paused_run_that_is_locked(own: LeaseDatabase) -> None:
    flow, holder = own.flow("a", "b:a"), own.connect()
    run, worker = own.start(flow), own.worker(flow)
    first = own.claim_one(flow, worker)
    pause(own, run)
    own.complete(first)
    with holder.transaction():
        own.rows("select from pgflow.runs where run_id = %s for update", run, conn=holder)
        assert own.claim(flow, worker) == []
        assert waits(own, run) == []
    show(own, flow)
    assert own.claim(flow, worker) == []
    assert waits(own, run) == [("b", 0, "paused", True, 0)]


def test_a_lost_task_of_a_paused_run_waits_once_it_is_recovered(own: LeaseDatabase) -> None:
    flow = own.flow()
    run, worker = own.start(flow), own.worker(flow)
    task = own.claim_one(flow, worker)
    pause(own, run)
    own.lapse(task)
    assert own.recover("0 s") == 1
    assert own.claim(flow, worker) == []
    assert waits(own, run) == [("a", 0, "paused", True, 0)]
    resume(own, run)
    assert own.claim_one(flow, worker).attempt == 1


def test_a_task_whose_message_was_purged_has_one_after_the_resume(own: LeaseDatabase) -> None:
    flow = own.flow()
    run = own.start(flow)
    own.value("select pgmq.purge_queue(%s)", flow)
    pause(own, run)
    assert own.value("select resent from pgflowd.resend()") == 0
    resume(own, run)
    assert own.claim_one(flow, own.worker(flow))


def test_what_waits_for_a_resume_that_cannot_come_is_a_violation(own: LeaseDatabase) -> None:
    run = own.start(own.flow())
    pause(own, run)
    own.do("update pgflowd.runs set paused_at = null")
    (found,) = own.rows("select * from pgflowd.violations()")
    assert (found.invariant, found.run_id) == ("I15", run)
    assert "its run is not paused" in found.detail
    own.do("update pgflowd.runs set paused_at = now()")


@covers("G19")
def test_a_paused_flow_begins_nothing_and_moves_nothing(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b")
    run, worker = own.start(flow), own.worker(flow)
    task = own.claim_one(flow, worker, max_tasks=1)
    asked = "select pgflowd.pause_flow(%s, 'no disk', 'jane')"

    assert (own.value(asked, flow), own.value(asked, flow)) == ("paused", "repeated")

    later = own.start(flow)
    before = own.queue(flow)
    assert own.claim(flow, worker) == []
    assert own.queue(flow) == before
    assert own.upstream_claim(flow, worker) == []
    assert own.complete(task) == "completed"
    assert own.rows("select * from pgflowd.look_at_queues(array[%s])", flow) == []
    (listed,) = own.rows("select paused_by, pause_reason from pgflowd.list_flows()")
    assert tuple(listed) == ("jane", "no disk")
    assert violated(own) == set()

    assert own.value("select pgflowd.resume_flow(%s)", flow) == "resumed"
    assert own.value("select pgflowd.resume_flow(%s)", flow) == "repeated"
    show(own, flow)
    assert {each.run_id for each in own.claim(flow, worker, max_tasks=9)} == {run, later}


def test_a_flow_is_paused_though_clients_keep_their_starts_open(own: LeaseDatabase) -> None:
    flow, client = own.flow(), own.connect()
    with client.transaction():
        own.rows("select pgflow.start_flow(%s, '{}')", flow, conn=client)
        own.do("set lock_timeout = '2 s'")
        assert own.value("select pgflowd.pause_flow(%s)", flow) == "paused"
    assert own.claim(flow, own.worker(flow)) == []


def test_a_deleted_flow_is_paused_no_longer(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.value("select pgflowd.pause_flow(%s)", flow)
    pause(own, own.start(flow))
    own.do("select pgflow.delete_flow_and_data(%s)", flow)
    assert own.rows("select * from pgflowd.paused_flows") == []
    assert own.rows("select * from pgflowd.waits") == []
    assert own.rows("select * from pgflowd.runs") == []
