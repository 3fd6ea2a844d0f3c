"""
Cancel and retry: a run ends at once, or goes on where it failed; completed work stays.
"""

from __future__ import annotations

import uuid

import psycopg
import pytest
from support.leases import House


def test_a_cancelled_run_ends_at_once_with_all_that_is_open(house: House) -> None:
    flow = house.flow("a", "m*:a", "z:m", "other")
    run = house.start(flow)
    worker = house.worker(flow)
    first = {task.step_slug: task for task in house.claim(flow, worker)}
    house.complete(first["a"], [1, 2, 3])
    held = house.claim(flow, worker, 2)

    assert house.cancel(run) == "cancelled"

    assert house.run_status(run) == "failed"
    text = "cancelled by me: enough"
    assert house.task(run, "a").status == "completed"
    for index in range(3):
        task = house.task(run, "m", index)
        assert (task.status, task.error_message) == ("failed", text)
    states = "select step_slug, status, error_message from pgflow.step_states where run_id = %s"
    assert {(row[0], row[1], row[2]) for row in house.rows(states, run)} == {
        ("a", "completed", None),
        ("m", "failed", text),
        ("z", "created", None),
        ("other", "failed", text),
    }
    assert not house.queue(flow)
    assert house.claim(flow, worker) == []
    assert [house.complete(task, "kept") for task in held] == ["late", "late"]
    assert house.fail(first["other"]) == "late"


def test_a_cancel_wakes_the_worker_so_that_it_beats(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    run = house.start(flow)
    house.claim(flow, house.worker(flow))
    listener = house.connect()
    listener.execute("listen pgflowd")

    house.cancel(run)

    (heard,) = listener.notifies(timeout=5, stop_after=1)
    assert heard.payload == flow


def test_a_cancel_tells_who_and_why(any_core: House) -> None:
    house = any_core
    run = house.start(house.flow())
    house.cancel(run)

    row = house.row(
        "select cancelled_by, cancel_reason, cancelled_at = (select failed_at"
        " from pgflow.runs) from pgflowd.runs where run_id = %s",
        run,
    )

    assert tuple(row) == ("me", "enough", True)


def test_a_cancel_sends_the_events_of_a_failure(own: House) -> None:
    run = own.start(own.flow())
    listener = own.connect()
    listener.execute(f'listen "pgflow:run:{run}"')

    own.cancel(run)

    import json

    heard = [json.loads(event.payload) for event in listener.notifies(timeout=5, stop_after=2)]
    assert [event["event_type"] for event in heard] == ["step:failed", "run:failed"]
    assert {event["error_message"] for event in heard} == {"cancelled by me: enough"}


def test_a_second_cancel_is_repeated(any_core: House) -> None:
    run = any_core.start(any_core.flow())
    assert any_core.cancel(run) == "cancelled"
    assert any_core.cancel(run) == "repeated"


def test_an_ended_or_unknown_run_cannot_be_cancelled(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    run = house.start(flow)
    house.complete(house.claim_one(flow, house.worker(flow)))

    with pytest.raises(psycopg.Error, match="has ended already: it is completed") as refused:
        house.cancel(run)
    assert refused.value.sqlstate == "PF003"
    with pytest.raises(psycopg.Error, match="there is no run") as refused:
        house.cancel(uuid.uuid4())
    assert refused.value.sqlstate == "PF002"


def test_a_task_claimed_just_before_the_transaction_of_the_cancel_is_no_obstacle(
    any_core: House,
) -> None:
    house = any_core
    flow = house.flow()
    run = house.start(flow)
    older = house.connect()

    with older.transaction():
        older.execute("select now()")
        house.claim(flow, house.worker(flow))
        assert house.cancel(run, older) == "cancelled"

    assert house.task(run).failed_at >= house.task(run).started_at


def test_a_retry_runs_what_failed_and_nothing_that_completed(house: House) -> None:
    flow = house.flow("a", "m*:a", "z:m", max_attempts=1)
    run = house.start(flow)
    worker = house.worker(flow)
    house.complete(house.claim_one(flow, worker), [1, 2, 3])
    tasks = sorted(house.claim(flow, worker), key=lambda task: task.task_index)
    house.complete(tasks[0], "first")
    house.fail(tasks[1])
    assert house.run_status(run) == "failed"

    assert house.retry(run) == 2

    assert house.run_status(run) == "started"
    again = house.claim(flow, worker)
    assert sorted((task.step_slug, task.task_index) for task in again) == [("m", 1), ("m", 2)]
    assert {task.attempt for task in again} == {1}
    for task in again:
        house.complete(task, "again")
    last = house.claim_one(flow, worker)
    assert last.input == {"m": ["first", "again", "again"]}
    house.complete(last, "end")
    assert house.run_status(run) == "completed"
    assert house.beat(worker, tasks[2]) == ["lost"]


def test_a_retry_after_a_type_violation_asks_the_step_again(house: House) -> None:
    flow = house.flow("a", "m*:a")
    run = house.start(flow)
    worker = house.worker(flow)
    assert house.complete(house.claim_one(flow, worker), "no array") == "failed"

    assert house.retry(run) == 1

    assert house.complete(house.claim_one(flow, worker), [7]) == "completed"
    assert house.complete(house.claim_one(flow, worker)) == "completed"
    assert house.run_status(run) == "completed"


def test_a_retry_starts_what_had_become_ready(any_core: House) -> None:
    house = any_core
    flow = house.flow("a", "b", "z:a", max_attempts=1)
    run = house.start(flow)
    worker = house.worker(flow)
    one, other = sorted(house.claim(flow, worker), key=lambda task: task.step_slug)
    house.fail(other)
    assert house.complete(one) == "late"

    assert house.retry(run) == 2
    done = []
    while tasks := house.claim(flow, worker):
        for task in tasks:
            done.append(task.step_slug)
            house.complete(task)

    assert sorted(done) == ["a", "b", "z"]
    assert house.run_status(run) == "completed"


def test_a_cancelled_run_is_retried_only_on_request(house: House) -> None:
    flow = house.flow()
    run = house.start(flow)
    worker = house.worker(flow)
    held = house.claim_one(flow, worker)
    house.cancel(run)

    with pytest.raises(psycopg.Error, match="was cancelled") as refused:
        house.retry(run)
    assert refused.value.sqlstate == "PF004"

    assert house.retry(run, cancelled=True) == 1
    assert house.beat(worker, held) == ["lost"]
    assert house.complete(house.claim_one(flow, worker)) == "completed"
    assert house.cancel(house.start(flow)) == "cancelled"


def test_only_a_failed_run_is_retried(any_core: House) -> None:
    house = any_core
    run = house.start(house.flow())

    with pytest.raises(psycopg.Error, match="has not failed: it is started") as refused:
        house.retry(run)
    assert refused.value.sqlstate == "PF004"
    with pytest.raises(psycopg.Error, match="there is no run") as refused:
        house.retry(uuid.uuid4())
    assert refused.value.sqlstate == "PF002"


def test_a_retry_clears_the_deaths_that_gave_a_task_up(house: House) -> None:
    house.set("crash_limit", 2)
    flow = house.flow()
    run = house.start(flow)
    worker = house.worker(flow)
    for _ in range(2):
        house.claim(flow, worker)
        house.crashed(worker)
    assert house.run_status(run) == "failed"

    house.retry(run)
    house.claim(flow, worker)

    assert house.crashed(worker) == 1
    assert house.run_status(run) == "started"


def test_a_step_that_failed_by_its_condition_is_tested_again(own: House) -> None:
    flow = own.flow()
    own.do(
        "select pgflow.add_step(%s, 'c', '{a}', required_input_pattern => '{\"a\": 1}',"
        " when_unmet => 'fail')",
        flow,
    )
    run = own.start(flow)
    worker = own.worker(flow)
    own.complete(own.claim_one(flow, worker), 2)
    assert own.run_status(run) == "failed"

    own.do("update pgflow.steps set required_input_pattern = '{\"a\": 2}' where step_slug = 'c'")
    assert own.retry(run) == 0

    assert own.complete(own.claim_one(flow, worker)) == "completed"
    assert own.run_status(run) == "completed"
