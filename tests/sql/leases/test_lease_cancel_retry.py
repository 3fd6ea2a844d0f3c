"""
Cancel and retry: a run ends at once, or goes on where it failed; completed work stays.
"""

from __future__ import annotations

import uuid

import psycopg
import pytest
from support.covers import covers
from support.leases import LeaseDatabase


def test_a_cancelled_run_ends_at_once_with_all_that_is_open(db: LeaseDatabase) -> None:
    flow = db.flow("a", "m*:a", "z:m", "other")
    run = db.start(flow)
    worker = db.worker(flow)
    first = {task.step_slug: task for task in db.claim(flow, worker)}
    db.complete(first["a"], [1, 2, 3])
    held = db.claim(flow, worker, 2)

    assert db.cancel(run) == "cancelled"

    assert db.status(run) == "failed"
    text = "cancelled by me: enough"
    assert db.task(run, "a").status == "completed"
    for index in range(3):
        task = db.task(run, "m", index)
        assert (task.status, task.error_message) == ("failed", text)
    states = "select step_slug, status, error_message from pgflow.step_states where run_id = %s"
    assert {(row[0], row[1], row[2]) for row in db.rows(states, run)} == {
        ("a", "completed", None),
        ("m", "failed", text),
        ("z", "created", None),
        ("other", "failed", text),
    }
    assert not db.queue(flow)
    assert db.claim(flow, worker) == []
    assert [db.complete(task, "kept") for task in held] == ["late", "late"]
    assert db.fail(first["other"]) == "late"


def test_a_cancel_wakes_the_worker_so_that_it_sends_a_heartbeat(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    db.claim(flow, db.worker(flow))
    listener = db.connect()
    listener.execute("listen pgflowd")

    db.cancel(run)

    (received,) = listener.notifies(timeout=5, stop_after=1)
    assert received.payload == flow


def test_a_cancel_stores_its_author_and_reason(own: LeaseDatabase) -> None:
    db = own
    run = db.start(db.flow())
    db.cancel(run)

    row = db.row(
        "select cancelled_by, cancel_reason, cancelled_at = (select failed_at"
        " from pgflow.runs) from pgflowd.runs where run_id = %s",
        run,
    )

    assert tuple(row) == ("me", "enough", True)


def test_a_cancel_sends_the_events_of_a_failure(own: LeaseDatabase) -> None:
    run = own.start(own.flow())
    listener = own.connect()
    listener.execute(f'listen "pgflow:run:{run}"')
    listener.execute("select pgflowd.follow(%s)", ([run],))

    own.cancel(run)

    import json

    received = [json.loads(event.payload) for event in listener.notifies(timeout=5, stop_after=2)]
    assert [event["event_type"] for event in received] == ["step:failed", "run:failed"]
    assert {event["status"] for event in received} == {"failed"}
    assert "enough" not in str(received)


def test_a_second_cancel_is_repeated(own: LeaseDatabase) -> None:
    run = own.start(own.flow())
    assert own.cancel(run) == "cancelled"
    assert own.cancel(run) == "repeated"


def test_an_ended_or_unknown_run_cannot_be_cancelled(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    db.complete(db.claim_one(flow, db.worker(flow)))

    with pytest.raises(psycopg.Error, match="has ended already: it is completed") as refused:
        db.cancel(run)
    assert refused.value.sqlstate == "PF003"
    with pytest.raises(psycopg.Error, match="there is no run") as refused:
        db.cancel(uuid.uuid4())
    assert refused.value.sqlstate == "PF002"


def test_a_task_claimed_just_before_the_transaction_of_the_cancel_does_no_harm(
    own: LeaseDatabase,
) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    older = db.connect()

    with older.transaction():
        older.execute("select now()")
        db.claim(flow, db.worker(flow))
        assert db.cancel(run, older) == "cancelled"

    assert db.task(run).failed_at >= db.task(run).started_at


def test_a_retry_runs_what_failed_and_nothing_that_completed(db: LeaseDatabase) -> None:
    flow = db.flow("a", "m*:a", "z:m", max_attempts=1)
    run = db.start(flow)
    worker = db.worker(flow)
    db.complete(db.claim_one(flow, worker), [1, 2, 3])
    tasks = sorted(db.claim(flow, worker), key=lambda task: task.task_index)
    db.complete(tasks[0], "first")
    db.fail(tasks[1])
    assert db.status(run) == "failed"

    assert db.retry(run) == 2

    assert db.status(run) == "started"
    assert db.complete(tasks[2], "of no use") == "late"
    again = db.claim(flow, worker)
    assert sorted((task.step_slug, task.task_index) for task in again) == [("m", 1), ("m", 2)]
    assert {task.attempt for task in again} == {1}
    for task in again:
        db.complete(task, "again")
    last = db.claim_one(flow, worker)
    assert last.input == {"m": ["first", "again", "again"]}
    db.complete(last, "end")
    assert db.status(run) == "completed"
    assert db.heartbeat(worker, tasks[2]) == ["lost"]


@covers("database 8", "G3")
@pytest.mark.parametrize("ended", ["failed", "cancelled"])
def test_what_still_runs_ends_before_a_retried_task_begins_anew(
    db: LeaseDatabase, ended: str
) -> None:
    flow = db.flow("quick", "slow", max_attempts=2)
    run = db.start(flow)
    worker, other = db.worker(flow), db.worker(flow)
    quick, slow = sorted(db.claim(flow, worker), key=lambda task: task.step_slug)
    db.fail(slow)
    db.show(slow)
    slow = db.claim_one(flow, worker)
    if ended == "failed":
        db.fail(quick, retry=False)
    else:
        db.fail(quick)
        db.cancel(run)

    assert db.retry(run, cancelled=True) == 2

    assert [task.step_slug for task in db.claim(flow, other)] == ["quick"]
    assert db.heartbeat(worker, slow, lease="40 s") == ["cancel"], "its runner is to be killed"
    assert db.claim(flow, other) == []
    lease = "select lease_until from pgflowd.attempts where token = %s"
    assert db.queue(flow)[db.task(run, "slow").message_id].vt == db.value(lease, slow.token)
    assert db.fail(slow, "killed") == "late"
    anew = db.claim_one(flow, other)
    assert (anew.step_slug, anew.attempt) == ("slow", 1)
    assert db.heartbeat(worker, slow) == ["lost"]
    assert db.fail(slow, "killed") == "repeated"
    assert db.complete(anew) == "completed"


@covers("database 8")
def test_a_retried_task_whose_worker_is_gone_begins_anew_by_recovery(
    own: LeaseDatabase,
) -> None:
    db = own
    flow = db.flow("a", "b", "c", max_attempts=1)
    run = db.start(flow)
    worker = db.worker(flow)
    db.fail(db.claim_one(flow, worker, max_tasks=1))
    run = db.start(flow)
    first, *held = db.claim(flow, worker, 3)
    assert {first.run_id, *(task.run_id for task in held)} == {run}
    db.fail(first)
    assert db.retry(run) == 3

    db.do("update pgflowd.attempts set lease_until = now() where token = %s", held[0].token)
    assert db.sweep() == (1, 0), "its lease has lapsed"
    assert db.crashed(worker) == 1, "its processes are reaped"

    again = db.claim(flow, db.worker(flow))
    assert {task.run_id for task in again} == {run}
    assert [task.attempt for task in again] == [1, 1, 1]
    assert db.heartbeat(worker, *held) == ["lost", "lost"]


@covers("database 8")
def test_a_run_that_fails_and_is_retried_twice_waits_for_the_same_attempt(
    db: LeaseDatabase,
) -> None:
    flow = db.flow("quick", "slow", max_attempts=1)
    run = db.start(flow)
    worker, other = db.worker(flow), db.worker(flow)
    tasks = {task.step_slug: task for task in db.claim(flow, worker)}
    db.fail(tasks["quick"])
    for _ in range(2):
        db.retry(run, cancelled=True)
        db.fail(db.claim_one(flow, other))
    db.retry(run)
    db.cancel(run)
    db.retry(run, cancelled=True)

    assert [task.step_slug for task in db.claim(flow, other)] == ["quick"]
    assert db.heartbeat(worker, tasks["slow"]) == ["cancel"]
    assert db.complete(tasks["slow"]) == "late"
    assert db.claim_one(flow, other).step_slug == "slow"


def test_a_retry_after_a_type_violation_asks_the_step_again(db: LeaseDatabase) -> None:
    flow = db.flow("a", "m*:a")
    run = db.start(flow)
    worker = db.worker(flow)
    assert db.complete(db.claim_one(flow, worker), "no array") == "failed"

    assert db.retry(run) == 1

    assert db.complete(db.claim_one(flow, worker), [7]) == "completed"
    assert db.complete(db.claim_one(flow, worker)) == "completed"
    assert db.status(run) == "completed"


def test_a_retry_starts_what_had_become_ready(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("a", "b", "z:a", max_attempts=1)
    run = db.start(flow)
    worker = db.worker(flow)
    one, other = sorted(db.claim(flow, worker), key=lambda task: task.step_slug)
    db.fail(other)
    assert db.complete(one) == "late"

    assert db.retry(run) == 2
    done = []
    while tasks := db.claim(flow, worker):
        for task in tasks:
            done.append(task.step_slug)
            db.complete(task)

    assert sorted(done) == ["a", "b", "z"]
    assert db.status(run) == "completed"


def test_a_cancelled_run_is_retried_only_on_request(db: LeaseDatabase) -> None:
    flow = db.flow()
    run = db.start(flow)
    worker = db.worker(flow)
    held = db.claim_one(flow, worker)
    db.cancel(run)

    with pytest.raises(psycopg.Error, match="was cancelled") as refused:
        db.retry(run)
    assert refused.value.sqlstate == "PF004"

    assert db.retry(run, cancelled=True) == 1
    assert db.heartbeat(worker, held) == ["cancel"]
    assert db.release(held) == "late"
    assert db.complete(db.claim_one(flow, worker)) == "completed"
    assert db.cancel(db.start(flow)) == "cancelled"


def test_only_a_failed_run_is_retried(own: LeaseDatabase) -> None:
    db = own
    run = db.start(db.flow())

    with pytest.raises(psycopg.Error, match="has not failed: it is started") as refused:
        db.retry(run)
    assert refused.value.sqlstate == "PF004"
    with pytest.raises(psycopg.Error, match="there is no run") as refused:
        db.retry(uuid.uuid4())
    assert refused.value.sqlstate == "PF002"


def test_a_retry_clears_the_deaths_that_gave_a_task_up(db: LeaseDatabase) -> None:
    db.set("crash_limit", 2)
    flow = db.flow()
    run = db.start(flow)
    worker = db.worker(flow)
    for _ in range(2):
        db.claim(flow, worker)
        db.crashed(worker)
    assert db.status(run) == "failed"

    db.retry(run)
    db.claim(flow, worker)

    assert db.crashed(worker) == 1
    assert db.status(run) == "started"


def test_a_step_that_failed_by_its_condition_is_tested_again(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.do(
        "select pgflow.add_step(%s, 'c', '{a}', required_input_pattern => '{\"a\": 1}',"
        " when_unmet => 'fail')",
        flow,
    )
    run = own.start(flow)
    worker = own.worker(flow)
    own.complete(own.claim_one(flow, worker), 2)
    assert own.status(run) == "failed"

    own.do("update pgflow.steps set required_input_pattern = '{\"a\": 2}' where step_slug = 'c'")
    assert own.retry(run) == 0

    assert own.complete(own.claim_one(flow, worker)) == "completed"
    assert own.status(run) == "completed"
