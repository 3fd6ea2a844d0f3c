"""
The claim: what it takes, what it passes over, and what it does with messages it cannot use.
"""

from __future__ import annotations

import uuid

import psycopg
import pytest
from support.leases import House, element


def test_a_claim_takes_no_more_than_asked_for(any_core: House) -> None:
    house = any_core
    flow = house.flow("m*")
    house.start(flow, list(range(5)))

    tasks = house.claim(flow, house.worker(flow), 3)

    assert sorted(task.input for task in tasks) == [0, 1, 2]
    assert house.claim(flow, house.worker(flow), 0) == []
    assert house.rows("select pgflowd.claim(%s, %s, null)", flow, house.worker(flow)) == []
    assert len(house.claim(flow, house.worker(flow), 10)) == 2


def test_inputs_are_those_of_the_contract(any_core: House) -> None:
    house = any_core
    flow = house.flow("a", "m*:a", "z:a+m")
    house.start(flow, {"n": 1})
    worker = house.worker(flow)

    inputs = {}
    while tasks := house.claim(flow, worker):
        for task in tasks:
            inputs[task.step_slug, task.task_index] = task.input, task.flow_input
            house.complete(task, [10, 20] if task.step_slug == "a" else task.task_index)

    assert inputs == {
        ("a", 0): ({}, {"n": 1}),
        ("m", 0): (10, None),
        ("m", 1): (20, None),
        ("z", 0): ({"a": [10, 20], "m": [0, 1]}, None),
    }


def test_a_first_attempt_tells_how_long_it_could_have_been_claimed(own: House) -> None:
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
def test_a_worker_that_leaves_gets_nothing(any_core: House, column: str) -> None:
    house = any_core
    if house.core == "0.8":
        column = "deprecated_at"  # the only one there
    flow = house.flow()
    house.start(flow)
    worker = house.worker(flow)
    house.do(f"update pgflow.workers set {column} = now() where worker_id = %s", worker)

    assert house.claim(flow, worker) == []

    (message,) = house.queue(flow).values()
    assert message.read_ct == 0


def test_an_unknown_worker_or_flow_is_not_found(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    house.start(flow)

    for args in ((flow, uuid.uuid4()), ("nobody_knows", house.worker(flow))):
        with pytest.raises(psycopg.Error, match="there is no") as refused:
            house.claim(*args)
        assert refused.value.sqlstate == "PF002"


def test_messages_of_nobody_are_archived_and_real_work_flows(house: House) -> None:
    flow = house.flow()
    strange = ["{}", "null", '"text"', '{"run_id": "x", "task_index": 0}', "[[[1]]]"]
    house.do("select pgmq.send_batch(%s, %s::text[]::jsonb[])", flow, strange * 3)
    run = house.start(flow)
    worker = house.worker(flow)

    task = house.claim_one(flow, worker, max_tasks=6)

    assert task.run_id == run
    assert list(house.queue(flow)) == [task.msg_id]
    assert house.value(f"select count(*) from pgmq.a_{flow}") == 15


def test_a_claim_reads_on_three_times_at_most(own: House) -> None:
    flow = own.flow()
    own.do("select pgmq.send_batch(%s, array_fill('{}'::jsonb, array[20]))", flow)
    own.start(flow)
    worker = own.worker(flow)

    assert own.claim(flow, worker, 5) == []
    assert len(own.queue(flow)) == 6
    assert len(own.claim(flow, worker, 5)) == 1


def test_a_message_of_a_flow_that_shares_the_queue_is_left_to_it(any_core: House) -> None:
    house = any_core
    if house.core != "0.8":
        return  # a core that refuses slugs equal but for case has no such queue
    flow = house.flow()
    house.do("update pgmq.meta set queue_name = upper(queue_name)")
    house.do("select pgmq.create(%s)", flow)
    shout = flow.upper()
    house.do("select pgflow.create_flow(%s)", shout)
    house.do("select pgflow.add_step(%s, 'a')", shout)
    run = house.start(shout)

    assert house.claim(flow, house.worker(flow)) == []

    (message,) = house.queue(flow).values()
    house.do("select pgmq.set_vt(%s, %s, 0)", flow, message.msg_id)
    assert house.claim_one(shout, house.worker(shout)).run_id == run


def test_the_message_of_a_task_at_work_is_hidden_until_its_lease_ends(house: House) -> None:
    flow = house.flow()
    house.start(flow)
    task = house.claim_one(flow, house.worker(flow), lease="10 minutes")
    house.show(task)

    for _ in range(3):
        assert house.claim(flow, house.worker(flow)) == []

    message = house.queue(flow)[task.msg_id]
    assert message.read_ct == 2
    assert message.vt >= task.lease_until


def test_the_message_of_an_unfenced_workers_task_is_hidden_for_the_timeout(house: House) -> None:
    flow = house.flow(timeout=600)
    house.start(flow)
    (msg_id,) = house.queue(flow)
    assert len(house.upstream_claim(flow, house.worker(flow))) == 1
    house.do("select pgmq.set_vt(%s, %s, 0)", flow, msg_id)

    assert house.claim(flow, house.worker(flow)) == []

    hidden = "select extract(epoch from vt - now()) from pgmq." + f"q_{flow}"
    assert 590 < house.value(hidden) < 610


def test_a_lapsed_task_is_taken_over_in_passing(house: House) -> None:
    flow = house.flow("m*")
    run = house.start(flow, [1, 2, 3])
    for task in house.claim(flow, house.worker(flow)):
        house.lapse(task)

    tasks = house.claim(flow, house.worker(flow))

    assert len(tasks) == 3
    assert {task.attempt for task in tasks} == {1}
    assert house.outcomes(run, "m", 1) == ["stalled", None]


def test_all_work_gets_done_without_any_sweeper(house: House) -> None:
    flow = house.flow("a", "m*:a", "z:m")
    run = house.start(flow)
    worker = house.worker(flow)

    for turn in range(6):
        for task in house.claim(flow, worker):
            if turn % 2:
                house.complete(task, [1, 2, 3])
            else:  # every other time the worker vanishes
                house.lapse(task)

    assert house.run_status(run) == "completed"


def test_a_claim_closes_what_an_unfenced_recovery_left_open(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    run = house.start(flow)
    lost = house.claim_one(flow, house.worker(flow))
    house.do(
        "update pgflow.step_tasks set status = 'queued', started_at = null, last_worker_id = null"
        " where run_id = %s",
        run,
    )
    house.show(lost)
    assert house.outcomes(run) == [None]

    task = house.claim_one(flow, house.worker(flow))

    assert task.attempt == 2
    assert house.outcomes(run) == ["lost", None]
    assert house.report(element(lost))[0].verdict == "lost"


def test_a_started_task_of_a_run_that_failed_is_not_claimed(house: House) -> None:
    flow = house.flow("a", "b", max_attempts=1)
    run = house.start(flow)
    one, other = house.claim(flow, house.worker(flow))
    house.fail(one)
    assert house.run_status(run) == "failed"

    assert house.claim(flow, house.worker(flow)) == []

    assert house.complete(other, "kept") == "late"
    assert house.value("select output from pgflowd.attempts where outcome = 'late'") == "kept"
