"""
Tasks that end their workers: they are left alone for longer and longer, and then set aside until
somebody decides about them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from support.covers import covers
from support.database import Row
from support.leases import LONG_SLEEP, LeaseDatabase

HIDDEN_S = "select extract(epoch from vt - clock_timestamp())::float8 from pgmq.q_{} order by vt"


def hidden_s(db: LeaseDatabase, flow: str) -> list[float]:
    """In how many seconds each message of the queue becomes visible."""
    return db.column(HIDDEN_S.format(flow))


def show(db: LeaseDatabase, flow: str) -> None:
    """Let the time come of the message that becomes visible first."""
    query = "update pgmq.q_{0} set vt = now() where vt = (select min(vt) from pgmq.q_{0})"
    db.do(query.format(flow))


def stall(db: LeaseDatabase, flow: str, times: int, how: str = "crashed") -> Row:
    """Let the task of this flow end so many workers."""
    worker = db.worker(flow)
    for _ in range(times):
        show(db, flow)
        (task,) = db.claim(flow, worker)
        if how == "lapsed":
            db.lapse(task)
        db.sweep() if how == "lapsed" else db.crashed(worker)
    return task


def status(db: LeaseDatabase, run: uuid.UUID) -> str:
    return str(db.value("select status from pgflowd.run_status where run_id = %s", run))


@pytest.fixture
def aside(own: LeaseDatabase) -> Callable[[], tuple[str, uuid.UUID]]:
    """Makes a flow and a run whose only task is quarantined after two stalls."""
    own.set("crash_limit", 2)
    own.set("on_crash_limit", "quarantine")

    def make() -> tuple[str, uuid.UUID]:
        flow = own.flow(max_attempts=1)
        run = own.start(flow)
        stall(own, flow, 2)
        return flow, run

    return make


@covers("G1")
@pytest.mark.parametrize("how", ["crashed", "lapsed"])
def test_at_the_limit_a_task_is_set_aside_and_never_leased(db: LeaseDatabase, how: str) -> None:
    db.set("crash_limit", 4)
    db.set("on_crash_limit", "quarantine")
    flow = db.flow("a", max_attempts=1)
    run = db.start(flow)
    said: list[tuple[str, Any]] = []
    db.conn.add_notice_handler(
        lambda notice: said.append((notice.sqlstate, json.loads(notice.message_detail or "null")))
    )

    stall(db, flow, 3, how)
    assert (status(db, run), db.waits(run), said) == ("started", [], [])
    stall(db, flow, 1, how)

    assert (status(db, run), db.waits(run)) == ("quarantined", [("a", 0, "quarantined")])
    assert db.queue(flow) == {}
    assert db.claim(flow, db.worker(flow)) == []
    assert db.outcomes(run) == ["stalled"] * 4
    assert db.task(run).attempts_count == 0
    assert [db.sweep("0 s"), db.sweep("0 s")] == [(0, 0)] * 2
    (listed,) = db.rows("select * from pgflowd.stalled_tasks()")
    assert (listed.run_id, listed.times) == (run, 4)
    assert listed.reason.startswith("quarantined: stalled 4 times in a row, the last time because")
    (state, told) = said[-1]
    assert (state, told["run"], told["step"], told["task_index"]) == ("PF014", str(run), "a", 0)
    assert db.rows("select * from pgflowd.violations()") == []


def test_a_step_may_have_its_own_limit_and_follows_the_code(own: LeaseDatabase) -> None:
    flow = own.flow(max_attempts=1)
    run = own.start(flow)
    define(own, flow, {"crashLimit": 2, "onCrashLimit": "quarantine"})

    stall(own, flow, 2)
    assert own.waits(run) == [("a", 0, "quarantined")]

    define(own, flow, {})
    own.value("select pgflowd.task_wake(%s, 'a', 0, 'jane', 'mended')", run)
    stall(own, flow, 4)
    assert (status(own, run), own.waits(run)) == ("started", [])
    stall(own, flow, 1)
    assert status(own, run) == "failed"


def define(db: LeaseDatabase, flow: str, options: dict[str, Any]) -> None:
    """Define the flow again, its first step with these options."""
    shape = db.value("select pgflowd.flow_shape(%s)", flow)
    shape["steps"][0]["options"] = options
    answer = db.value("select pgflowd.define(%s, %s)", flow, json.dumps(shape))
    assert answer["status"] == "verified"
    given = db.value("select pgflowd.flow_shape(%s)", flow)["steps"][0]["options"]
    assert {name: given.get(name) for name in options} == options
    assert options or not {"crashLimit", "onCrashLimit"} & given.keys()


def test_who_was_requeued_may_stall_as_often_again(own: LeaseDatabase, aside) -> None:
    flow, run = aside()
    requeue = "select pgflowd.requeue_task(%s, 'a', 0, '1 h', 'jane')"
    assert own.value(requeue, run) is True
    assert own.value(requeue, run) is False
    stall(own, flow, 1)
    assert status(own, run) == "started"
    stall(own, flow, 1)
    assert status(own, run) == "quarantined"
    own.value("select pgflowd.task_wake(%s, 'a', 0, 'jane', 'mended')", run)
    assert own.complete(own.claim_one(flow, own.worker(flow))) == "completed"
    assert status(own, run) == "completed"


@pytest.mark.parametrize(
    ("deed", "becomes"),
    [
        ("select pgflowd.cancel(%s, 'enough', 'jane')", "cancelled"),
        ("select pgflowd.give_up_task(%s, 'a', 0, '1 h', 'hopeless', 'jane')", "failed"),
        ("select pgflowd.task_complete(%s, 'a', 0, '1', 'jane')", "completed"),
        ("select pgflowd.task_fail(%s, 'a', 0, 'hopeless', true, 'jane')", "failed"),
    ],
)
def test_somebody_decides_about_it(own: LeaseDatabase, aside, deed: str, becomes: str) -> None:
    _, run = aside()
    own.value(deed, run)
    assert status(own, run) == becomes
    assert own.waits(run) == []
    assert own.rows("select * from pgflowd.stalled_tasks()") == []
    assert own.rows("select * from pgflowd.violations()") == []


def test_a_task_in_quarantine_is_passed_by_pause_and_resume(own: LeaseDatabase, aside) -> None:
    flow, run = aside()
    own.value("select pgflowd.pause(%s)", run)
    assert status(own, run) == "paused"
    own.value("select pgflowd.resume(%s)", run)
    assert status(own, run) == "quarantined"
    assert own.claim(flow, own.worker(flow)) == []


def test_the_other_tasks_of_the_run_go_on(own: LeaseDatabase) -> None:
    own.set("crash_limit", 1)
    own.set("on_crash_limit", "quarantine")
    flow = own.flow("a", "b")
    run, doomed, worker = own.start(flow), own.worker(flow), own.worker(flow)
    (first,) = own.claim(flow, doomed, max_tasks=1)
    own.crashed(doomed)
    assert status(own, run) == "started"
    other = own.claim_one(flow, worker)
    assert other.step_slug != first.step_slug
    own.complete(other)
    assert status(own, run) == "quarantined"


def test_a_task_that_got_somewhere_counts_from_nothing(own: LeaseDatabase) -> None:
    own.set("crash_limit", 3)
    own.set("on_crash_limit", "quarantine")
    flow = own.flow()
    run, worker = own.start(flow), own.worker(flow)
    stall(own, flow, 2)
    task = own.claim_one(flow, worker)
    own.suspend(task, LONG_SLEEP)
    own.free(task)
    stall(own, flow, 2)
    assert status(own, run) == "started"
    stall(own, flow, 1)
    assert status(own, run) == "quarantined"


@pytest.mark.parametrize("how", ["crashed", "lapsed"])
def test_from_the_third_stall_on_a_task_is_left_alone_for_longer_and_longer(
    db: LeaseDatabase, how: str
) -> None:
    db.set("crash_limit", 1000)
    flow = db.flow()
    db.start(flow)

    for least_s, most_s in ((-9, 0), (-9, 0), (0.5, 3.1), (1, 6.1), (3, 12.1)):
        stall(db, flow, 1, how)
        assert least_s < hidden_s(db, flow)[0] <= most_s
    for _ in range(4):
        stall(db, flow, 1, how)
    assert 29 < hidden_s(db, flow)[0] < 91


def test_a_claim_that_finds_a_lapsed_lease_leaves_the_task_alone_too(db: LeaseDatabase) -> None:
    flow = db.flow()
    run, worker = db.start(flow), db.worker(flow)
    stall(db, flow, 2)
    db.lapse(db.claim_one(flow, worker))

    assert db.claim(flow, worker) == []

    assert db.task(run).status == "queued"
    assert 0.5 < hidden_s(db, flow)[0] <= 3.1
    show(db, flow)
    assert db.claim_one(flow, worker).attempt == 1


def test_one_death_that_is_noticed_twice_counts_once(own: LeaseDatabase) -> None:
    own.set("crash_limit", 2)
    flow = own.flow()
    run, worker = own.start(flow), own.worker(flow)
    own.lapse(own.claim_one(flow, worker))
    assert [own.crashed(worker), own.crashed(worker), own.recover("0 s")] == [1, 0, 0]
    assert own.task(run).status == "queued"


def test_nine_tasks_come_apart_from_the_one_that_kills_their_worker(own: LeaseDatabase) -> None:
    own.set("on_crash_limit", "quarantine")
    flow = own.flow("m*")
    run = own.start(flow, list(range(10)))

    for _ in range(60):
        worker = own.worker(flow)
        tasks = own.claim(flow, worker)
        if any(task.task_index == 3 for task in tasks):
            own.crashed(worker)
        else:
            for task in tasks:
                own.complete(task)
        if own.queue(flow):
            show(own, flow)

    assert own.waits(run) == [("m", 3, "quarantined")]
    statuses = "select status, count(*) from pgflow.step_tasks group by status order by status"
    assert [tuple(row) for row in own.rows(statuses)] == [("completed", 9), ("queued", 1)]
