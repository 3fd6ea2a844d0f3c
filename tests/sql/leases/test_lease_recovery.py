"""
Recovery: tasks without a live worker are requeued, unspent, and not for ever.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.covers import covers
from support.leases import Connection, LeaseDatabase


def test_a_release_gives_the_attempt_back(db: LeaseDatabase) -> None:
    flow = db.flow(max_attempts=1)
    run = db.start(flow)
    worker = db.worker(flow)

    for _ in range(3):
        task = db.claim_one(flow, worker)
        assert task.attempt == 1
        assert db.release(task) == "queued"
        assert db.task(run).attempts_count == 0
        assert db.queue(flow)[task.msg_id].visible

    assert db.complete(db.claim_one(flow, worker)) == "completed"


def test_a_release_with_a_delay_hides_the_task(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    db.start(flow)
    task = db.claim_one(flow, db.worker(flow))

    db.release(task, delay="1 hour")

    assert db.claim(flow, db.worker(flow)) == []
    assert not db.queue(flow)[task.msg_id].visible


def test_what_is_made_visible_is_made_known(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    db.start(flow)
    worker = db.worker(flow)
    listener = db.connect()
    listener.execute("listen pgflowd")
    db.do("select pgflowd.arm(%s, gen_random_uuid())", flow)

    for give_back in (
        lambda task: db.release(task),
        lambda task: db.fail(task, delay="0 s"),
        lambda task: db.crashed(worker),
        lambda task: db.lapse(task) or db.recover(),
    ):
        give_back(db.claim_one(flow, worker))
        (received,) = listener.notifies(timeout=5, stop_after=1)
        assert received.payload == flow


def test_a_dead_workers_tasks_are_visible_at_once_and_unspent(db: LeaseDatabase) -> None:
    flow = db.flow("m*", max_attempts=1)
    run = db.start(flow, [1, 2, 3])
    dead, other = db.worker(flow), db.worker(flow)
    db.claim(flow, dead, 2)
    (alive,) = db.claim(flow, other)

    assert db.crashed(dead, "killed by signal 9") == 2

    again = db.claim(flow, other)
    assert sorted(task.task_index for task in again) == [0, 1]
    assert {task.attempt for task in again} == {1}
    assert db.outcomes(run, "m", 0) == ["stalled", None]
    text = "select error_message from pgflowd.attempts where outcome = 'stalled'"
    assert {message for (message,) in db.rows(text)} == {"killed by signal 9"}
    assert db.complete(alive) == "completed"


def test_a_killed_worker_without_tasks_releases_nothing(own: LeaseDatabase) -> None:
    flow = own.flow()
    assert own.crashed(own.worker(flow)) == 0


@covers("row 7")
def test_several_sweeps_give_each_lost_task_back_once(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("m*")
    db.start(flow, list(range(200)))
    for _ in range(4):
        db.claim(flow, db.worker(flow), 50)
    db.do("update pgflowd.attempts set lease_until = now()")

    with ThreadPoolExecutor(4) as pool:
        counts = list(
            pool.map(lambda conn: db.recover(conn=conn), [db.connect() for _ in range(4)])
        )

    while (more := db.recover()) > 0:
        counts.append(more)
    assert sum(counts) == 200
    assert db.value("select count(*) from pgflowd.attempts where outcome = 'stalled'") == 200
    assert {
        row.attempts_count for row in db.rows("select attempts_count from pgflow.step_tasks")
    } == {0}


def test_a_sweep_takes_no_more_than_its_maximum(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("m*")
    db.start(flow, list(range(10)))
    dead = db.worker(flow)
    db.claim(flow, dead)

    taken = [db.value("select pgflowd.crashed(%s, 'x', 4)", dead) for _ in range(4)]

    assert taken == [4, 4, 2, 0]


def test_a_living_lease_is_not_recovered(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    db.age(task, "1 day")

    assert db.recover("0 s") == 0

    assert db.task(run).status == "started"


def test_a_lapsed_lease_is_recovered(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    db.lapse(task)

    assert db.recover() == 1

    assert db.task(run).status == "queued"
    assert db.task(run).attempts_count == 0
    assert db.outcomes(run) == ["stalled"]


@pytest.mark.parametrize("how", ["crashed", "lapsed"])
def test_at_the_crash_limit_a_task_fails_with_a_reason(db: LeaseDatabase, how: str) -> None:
    db.set("crash_limit", 3)
    flow = db.flow()
    run = db.start(flow)
    worker = db.worker(flow)

    for death in range(3):
        assert db.status(run) == "started"
        task = db.claim_one(flow, worker)
        if how == "lapsed":
            db.lapse(task)
        gave_back = db.recover() if how == "lapsed" else db.crashed(worker)
        assert gave_back == (1 if death < 2 else 0)

    assert db.status(run) == "failed"
    assert db.task(run).error_message.startswith("stalled 3 times in a row")
    assert db.outcomes(run) == db.kept("stalled", "stalled", "stalled")
    assert not db.queue(flow)


def test_deaths_count_in_a_row_only(db: LeaseDatabase) -> None:
    db.set("crash_limit", 2)
    flow = db.flow(max_attempts=9)
    run = db.start(flow)
    worker = db.worker(flow)

    for _ in range(3):
        db.claim(flow, worker)
        assert db.crashed(worker) == 1
        assert db.fail(db.claim_one(flow, worker)) == "queued"

    assert db.status(run) == "started"


def test_a_task_at_the_crash_limit_is_left_to_the_sweeper(db: LeaseDatabase) -> None:
    db.set("crash_limit", 1)
    flow = db.flow()
    run = db.start(flow)
    db.lapse(db.claim_one(flow, db.worker(flow)))

    assert db.claim(flow, db.worker(flow)) == []
    assert db.recover() == 0

    assert db.status(run) == "failed"


def test_a_sweep_does_not_wait_for_a_locked_run(own: LeaseDatabase) -> None:
    db = own
    db.set("crash_limit", 1)
    flow = db.flow()
    run = db.start(flow)
    db.lapse(db.claim_one(flow, db.worker(flow)))
    holder, sweeper = db.connect(), db.connect()
    sweeper.execute("set lock_timeout = '100ms'")

    with holder.transaction():
        holder.execute("select from pgflow.runs where run_id = %s for update", (run,))
        assert db.recover(conn=sweeper) == 0
    assert db.status(run) == "started"

    db.recover()
    assert db.status(run) == "failed"


def test_an_unfenced_workers_task_is_stalled_after_its_timeout_and_the_threshold(
    db: LeaseDatabase,
) -> None:
    flow = db.flow(timeout=60)
    run = db.start(flow)
    (task,) = db.upstream_claim(flow, db.worker(flow))

    db.age(task, "100 s")
    assert db.recover("60 s") == 0
    assert db.recover("30 s") == 1

    assert db.task(run).status == "queued"
    assert db.outcomes(run) == ["stalled"]


def test_an_unfenced_workers_task_is_given_back_three_times_and_then_fails(
    db: LeaseDatabase,
) -> None:
    flow = db.flow(max_attempts=9)
    run = db.start(flow)
    worker = db.worker(flow)
    (msg_id,) = db.queue(flow)

    for time in range(4):
        db.do("select pgmq.set_vt(%s, %s, 0)", flow, msg_id)
        (task,) = db.upstream_claim(flow, worker)
        db.age(task, "1 hour")
        assert db.recover() == (1 if time < 3 else 0)

    assert db.status(run) == "failed"
    assert "given back 3 times" in db.task(run).error_message
    assert not db.queue(flow)


def test_a_sweep_returns_what_it_recovered_and_what_it_gave_up(own: LeaseDatabase) -> None:
    db = own
    db.set("crash_limit", 4)
    ours, theirs = db.flow(max_attempts=9), db.flow(max_attempts=9)
    runs = [db.start(ours), db.start(theirs)]
    workers = [db.worker(ours), db.worker(theirs)]
    messages = [(flow, msg_id) for flow in (ours, theirs) for msg_id in db.queue(flow)]

    for time in range(4):
        for message in messages:
            db.do("select pgmq.set_vt(%s, %s, 0)", *message)
        db.lapse(db.claim_one(ours, workers[0]))
        db.age(db.upstream_claim(theirs, workers[1])[0], "1 hour")
        assert db.sweep() == ((2, 0) if time < 3 else (0, 2))

    assert [db.status(run) for run in runs] == ["failed", "failed"]
    assert db.sweep() == (0, 0)


def test_a_sweep_after_a_crash_returns_what_it_gave_up(own: LeaseDatabase) -> None:
    db = own
    db.set("crash_limit", 2)
    flow = db.flow(max_attempts=9)
    run = db.start(flow)
    worker = db.worker(flow)

    for expected in ((1, 0), (0, 1)):
        db.claim_one(flow, worker)
        assert db.row("select * from pgflowd.sweep_dead(%s, 'killed')", worker) == expected

    assert db.status(run) == "failed"


def notices(conn: Connection) -> list[tuple[str, str]]:
    """State and detail of the notices of sweeps on this connection."""
    said: list[tuple[str, str]] = []
    conn.add_notice_handler(lambda notice: said.append((notice.sqlstate, notice.message_detail)))
    return said


def test_a_notice_names_the_run_that_a_sweep_failed(own: LeaseDatabase) -> None:
    db = own
    db.set("crash_limit", 1)
    flow = db.flow()
    run = db.start(flow)
    db.lapse(db.claim_one(flow, db.worker(flow)))
    said = notices(db.conn)

    assert db.sweep() == (0, 1)

    ((state, detail),) = said
    error = "stalled 1 times in a row, the last time because its lease lapsed"
    told = {"run": str(run), "flow": flow, "step": "a", "error": error}
    assert (state, json.loads(detail)) == ("PF011", told)


def test_a_run_that_continues_without_a_given_up_task_is_not_reported(own: LeaseDatabase) -> None:
    own.set("crash_limit", 1)
    flow = own.flow()
    own.do("update pgflow.steps set when_exhausted = 'skip' where flow_slug = %s", flow)
    run = own.start(flow)
    own.lapse(own.claim_one(flow, own.worker(flow)))
    said = notices(own.conn)

    assert own.sweep() == (0, 1)

    assert own.status(run) == "completed"
    assert said == []


def test_what_upstreams_recovery_gave_up_is_failed(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    (task,) = db.upstream_claim(flow, db.worker(flow))
    db.age(task, "1 hour")
    db.do("update pgflow.step_tasks set requeued_count = 3, permanently_stalled_at = now()")

    assert db.recover() == 0

    assert db.status(run) == "failed"


@pytest.mark.parametrize("leased", [False, True])
def test_what_any_recovery_gave_up_is_failed_though_its_message_is_archived(
    own: LeaseDatabase, leased: bool
) -> None:
    db = own
    flow = db.flow(max_attempts=9)
    run = db.start(flow)
    worker = db.worker(flow)
    task = db.claim_one(flow, worker) if leased else db.upstream_claim(flow, worker)[0]
    if leased:
        db.lapse(task)
    db.age(task, "1 hour")
    db.do("update pgflow.step_tasks set requeued_count = 3")
    db.do("select pgflow.requeue_stalled_tasks()")
    assert not db.queue(flow)

    assert db.recover() == 0

    assert db.status(run) == "failed"


@covers("row 86")
def test_upstreams_recovery_takes_no_task_with_heartbeats(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow(timeout=60)
    db.start(flow)
    worker = db.worker(flow)
    task = db.claim_one(flow, worker)
    db.age(task, "1 hour")

    db.heartbeat(worker, task)

    assert db.value("select pgflow.requeue_stalled_tasks()") == 0
    assert db.complete(task) == "completed"


def test_a_heartbeat_takes_back_what_upstreams_recovery_put_back(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    worker = db.worker(flow)
    task = db.claim_one(flow, worker)
    db.do(
        "update pgflow.step_tasks set status = 'queued', started_at = null, last_worker_id = null"
    )

    assert db.heartbeat(worker, task) == ["ok"]

    assert (db.task(run).status, db.task(run).last_worker_id) == ("started", worker)
    assert db.complete(task) == "completed"


def test_a_task_put_back_and_not_claimed_since_may_report(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    db.do(
        "update pgflow.step_tasks set status = 'queued', started_at = null, last_worker_id = null"
    )

    assert db.complete(task) == "completed"

    assert db.status(run) == "completed"


def test_a_lost_attempt_of_an_ended_run_is_closed_and_its_task_left(
    own: LeaseDatabase,
) -> None:
    db = own
    flow = db.flow("a", "b", max_attempts=1)
    run = db.start(flow)
    worker = db.worker(flow)
    one, other = db.claim(flow, worker)
    db.fail(one)
    db.lapse(other)

    assert db.recover() == 0
    assert db.crashed(worker) == 0

    assert db.status(run) == "failed"
    assert db.task(run, other.step_slug).status != "queued"


@covers("outside 5")
def test_a_worker_whose_row_was_deleted_keeps_what_it_holds(db: LeaseDatabase) -> None:
    flow = db.flow("a", "b")
    run = db.start(flow)
    worker = db.worker(flow)
    first, second = db.claim(flow, worker)
    for task in (first, second):
        db.age(task, "30 s")

    db.do("delete from pgflow.workers")

    assert db.heartbeat(worker, first) == ["ok"]
    assert [db.complete(task) for task in (first, second)] == ["completed", "completed"]
    assert db.status(run) == "completed"


@covers("outside 5")
def test_a_task_whose_worker_s_row_was_deleted_is_given_back_when_its_lease_lapses(
    db: LeaseDatabase,
) -> None:
    flow = db.flow("a", "b", timeout=600)
    db.start(flow)
    worker = db.worker(flow)
    first, second = db.claim(flow, worker)

    db.do("delete from pgflow.workers")
    assert db.sweep() == (0, 0)
    db.lapse(first)
    stalled = "select step_slug, worker_id, reason from pgflowd.stalled_tasks()"
    assert [tuple(row) for row in db.rows(stalled)] == [
        (first.step_slug, worker, "its lease lapsed")
    ]
    assert db.sweep() == (1, 0)
    db.lapse(second)

    again = db.claim(flow, db.worker(flow))
    assert [task.attempt for task in again] == [1, 1], "by the sweep, and by the claim"
    assert db.heartbeat(worker, first, second) == ["lost", "lost"]
