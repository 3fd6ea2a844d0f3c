"""
The claim: what it takes, what it passes over, and what it does with messages it cannot use.
"""

from __future__ import annotations

import uuid

import psycopg
import pytest
from support.leases import LeaseDatabase, element


def test_a_claim_takes_no_more_than_asked_for(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("m*")
    db.start(flow, list(range(5)))

    tasks = db.claim(flow, db.worker(flow), 3)

    assert sorted(task.input for task in tasks) == [0, 1, 2]
    assert db.claim(flow, db.worker(flow), 0) == []
    assert db.rows("select pgflowd.claim(%s, %s, null)", flow, db.worker(flow)) == []
    assert len(db.claim(flow, db.worker(flow), 10)) == 2


def test_inputs_are_those_of_the_contract(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("a", "m*:a", "z:a+m")
    db.start(flow, {"n": 1})
    worker = db.worker(flow)

    inputs = {}
    while tasks := db.claim(flow, worker):
        for task in tasks:
            inputs[task.step_slug, task.task_index] = task.input, task.flow_input
            db.complete(task, [10, 20] if task.step_slug == "a" else task.task_index)

    assert inputs == {
        ("a", 0): ({}, {"n": 1}),
        ("m", 0): (10, None),
        ("m", 1): (20, None),
        ("z", 0): ({"a": [10, 20], "m": [0, 1]}, None),
    }


def test_a_first_attempt_tells_how_long_it_could_have_been_claimed(own: LeaseDatabase) -> None:
    flow = own.flow("a")
    run = own.start(flow)
    own.do("update pgflow.steps set opt_start_delay = 600 where flow_slug = %s", flow)
    aged = "update pgflow.step_tasks set queued_at = queued_at - interval '1 h' where run_id = %s"
    own.do(aged, run)
    worker = own.worker(flow)

    first = own.claim_one(flow, worker)
    own.fail(first)
    own.show(first)
    second = own.claim_one(flow, worker)

    assert 3000 <= first.waited_s < 3600
    assert second.waited_s is None


@pytest.mark.parametrize("column", ["deprecated_at", "stopped_at"])
def test_a_worker_that_leaves_gets_nothing(own: LeaseDatabase, column: str) -> None:
    db = own
    flow = db.flow()
    db.start(flow)
    worker = db.worker(flow)
    db.do(f"update pgflow.workers set {column} = now() where worker_id = %s", worker)

    assert db.claim(flow, worker) == []

    (message,) = db.queue(flow).values()
    assert message.read_ct == 0


def test_an_unknown_worker_or_flow_is_not_found(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    db.start(flow)

    for args in ((flow, uuid.uuid4()), ("nobody_knows", db.worker(flow))):
        with pytest.raises(psycopg.Error, match="there is no") as refused:
            db.claim(*args)
        assert refused.value.sqlstate == "PF002"


def test_messages_without_a_task_are_archived_and_others_processed(db: LeaseDatabase) -> None:
    flow = db.flow()
    strange = ["{}", "null", '"text"', '{"run_id": "x", "task_index": 0}', "[[[1]]]"]
    db.do("select pgmq.send_batch(%s, %s::text[]::jsonb[])", flow, strange * 3)
    run = db.start(flow)
    worker = db.worker(flow)

    task = db.claim_one(flow, worker, max_tasks=6)

    assert task.run_id == run
    assert list(db.queue(flow)) == [task.msg_id]
    assert db.value(f"select count(*) from pgmq.a_{flow}") == 15


def test_a_claim_reads_on_three_times_at_most(own: LeaseDatabase) -> None:
    flow = own.flow()
    own.do("select pgmq.send_batch(%s, array_fill('{}'::jsonb, array[20]))", flow)
    own.start(flow)
    worker = own.worker(flow)

    assert own.claim(flow, worker, 5) == []
    assert len(own.queue(flow)) == 6
    assert len(own.claim(flow, worker, 5)) == 1


def test_the_message_of_a_task_at_work_is_hidden_until_its_lease_ends(db: LeaseDatabase) -> None:
    flow = db.flow()
    db.start(flow)
    task = db.claim_one(flow, db.worker(flow), lease="10 minutes")
    db.show(task)

    for _ in range(3):
        assert db.claim(flow, db.worker(flow)) == []

    message = db.queue(flow)[task.msg_id]
    assert message.read_ct == 2
    assert message.vt >= task.lease_until


def test_the_message_of_an_unfenced_workers_task_is_hidden_for_the_timeout(
    db: LeaseDatabase,
) -> None:
    flow = db.flow(timeout=600)
    db.start(flow)
    (msg_id,) = db.queue(flow)
    assert len(db.upstream_claim(flow, db.worker(flow))) == 1
    db.do("select pgmq.set_vt(%s, %s, 0)", flow, msg_id)

    assert db.claim(flow, db.worker(flow)) == []

    hidden = "select extract(epoch from vt - now()) from pgmq." + f"q_{flow}"
    assert 590 < db.value(hidden) < 610


def test_a_lapsed_task_is_taken_over_in_passing(db: LeaseDatabase) -> None:
    flow = db.flow("m*")
    run = db.start(flow, [1, 2, 3])
    for task in db.claim(flow, db.worker(flow)):
        db.lapse(task)

    tasks = db.claim(flow, db.worker(flow))

    assert len(tasks) == 3
    assert {task.attempt for task in tasks} == {1}
    assert db.outcomes(run, "m", 1) == ["stalled", None]


def test_all_work_gets_done_without_any_sweeper(db: LeaseDatabase) -> None:
    flow = db.flow("a", "m*:a", "z:m")
    run = db.start(flow)
    worker = db.worker(flow)

    for turn in range(6):
        for task in db.claim(flow, worker):
            if turn % 2:
                db.complete(task, [1, 2, 3])
            else:  # every other time the worker vanishes
                db.lapse(task)

    assert db.status(run) == "completed"


def test_a_claim_closes_what_an_unfenced_recovery_left_open(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    lost = db.claim_one(flow, db.worker(flow))
    db.do(
        "update pgflow.step_tasks set status = 'queued', started_at = null, last_worker_id = null"
        " where run_id = %s",
        run,
    )
    db.show(lost)
    assert db.outcomes(run) == [None]

    task = db.claim_one(flow, db.worker(flow))

    assert task.attempt == 2
    assert db.outcomes(run) == ["lost", None]
    assert db.report(element(lost))[0].verdict == "lost"


def test_a_started_task_of_a_run_that_failed_is_not_claimed(db: LeaseDatabase) -> None:
    flow = db.flow("a", "b", max_attempts=1)
    run = db.start(flow)
    one, other = db.claim(flow, db.worker(flow))
    db.fail(one)
    assert db.status(run) == "failed"

    assert db.claim(flow, db.worker(flow)) == []

    assert db.complete(other, "kept") == "late"
    assert db.value("select output from pgflowd.attempts where outcome = 'late'") == "kept"
