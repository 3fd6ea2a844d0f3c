"""
Recovery: what nobody works on any more is given back, unspent, and not for ever.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.covers import covers
from support.leases import Connection, House


def test_a_release_gives_the_attempt_back(house: House) -> None:
    flow = house.flow(max_attempts=1)
    run = house.start(flow)
    worker = house.worker(flow)

    for _ in range(3):
        task = house.claim_one(flow, worker)
        assert task.attempt == 1
        assert house.release(task) == "queued"
        assert house.task(run).attempts_count == 0
        assert house.queue(flow)[task.msg_id].visible

    assert house.complete(house.claim_one(flow, worker)) == "completed"


def test_a_release_with_a_delay_hides_the_task(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    house.start(flow)
    task = house.claim_one(flow, house.worker(flow))

    house.release(task, delay="1 hour")

    assert house.claim(flow, house.worker(flow)) == []
    assert not house.queue(flow)[task.msg_id].visible


def test_what_is_made_visible_is_made_known(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    house.start(flow)
    worker = house.worker(flow)
    listener = house.connect()
    listener.execute("listen pgflowd")

    for give_back in (
        lambda task: house.release(task),
        lambda task: house.fail(task, delay="0 s"),
        lambda task: house.crashed(worker),
        lambda task: house.lapse(task) or house.recover(),
    ):
        give_back(house.claim_one(flow, worker))
        (heard,) = listener.notifies(timeout=5, stop_after=1)
        assert heard.payload == flow


def test_a_dead_workers_tasks_are_visible_at_once_and_unspent(house: House) -> None:
    flow = house.flow("m*", max_attempts=1)
    run = house.start(flow, [1, 2, 3])
    dead, other = house.worker(flow), house.worker(flow)
    house.claim(flow, dead, 2)
    (alive,) = house.claim(flow, other)

    assert house.crashed(dead, "killed by signal 9") == 2

    again = house.claim(flow, other)
    assert sorted(task.task_index for task in again) == [0, 1]
    assert {task.attempt for task in again} == {1}
    assert house.outcomes(run, "m", 0) == ["stalled", None]
    text = "select error_message from pgflowd.attempts where outcome = 'stalled'"
    assert {message for (message,) in house.rows(text)} == {"killed by signal 9"}
    assert house.complete(alive) == "completed"


def test_a_dead_worker_that_held_nothing_gives_nothing_back(any_core: House) -> None:
    flow = any_core.flow()
    assert any_core.crashed(any_core.worker(flow)) == 0


@covers("row 7")
def test_several_sweeps_give_each_lost_task_back_once(any_core: House) -> None:
    house = any_core
    flow = house.flow("m*")
    house.start(flow, list(range(200)))
    for _ in range(4):
        house.claim(flow, house.worker(flow), 50)
    house.do("update pgflowd.attempts set lease_until = now()")

    with ThreadPoolExecutor(4) as pool:
        counts = list(
            pool.map(lambda conn: house.recover(conn=conn), [house.connect() for _ in range(4)])
        )

    while (more := house.recover()) > 0:
        counts.append(more)
    assert sum(counts) == 200
    assert house.value("select count(*) from pgflowd.attempts where outcome = 'stalled'") == 200
    assert {
        row.attempts_count for row in house.rows("select attempts_count from pgflow.step_tasks")
    } == {0}


def test_a_sweep_takes_no_more_than_its_maximum(any_core: House) -> None:
    house = any_core
    flow = house.flow("m*")
    house.start(flow, list(range(10)))
    dead = house.worker(flow)
    house.claim(flow, dead)

    taken = [house.value("select pgflowd.crashed(%s, 'x', 4)", dead) for _ in range(4)]

    assert taken == [4, 4, 2, 0]


def test_a_living_lease_is_not_recovered(house: House) -> None:
    flow = house.flow()
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow))
    house.age(task, "1 day")

    assert house.recover("0 s") == 0

    assert house.task(run).status == "started"


def test_a_lapsed_lease_is_recovered(house: House) -> None:
    flow = house.flow()
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow))
    house.lapse(task)

    assert house.recover() == 1

    assert house.task(run).status == "queued"
    assert house.task(run).attempts_count == 0
    assert house.outcomes(run) == ["stalled"]


@pytest.mark.parametrize("how", ["crashed", "lapsed"])
def test_at_the_crash_limit_a_task_fails_with_a_reason(house: House, how: str) -> None:
    house.set("crash_limit", 3)
    flow = house.flow()
    run = house.start(flow)
    worker = house.worker(flow)

    for death in range(3):
        assert house.run_status(run) == "started"
        task = house.claim_one(flow, worker)
        if how == "lapsed":
            house.lapse(task)
        gave_back = house.recover() if how == "lapsed" else house.crashed(worker)
        assert gave_back == (1 if death < 2 else 0)

    assert house.run_status(run) == "failed"
    assert house.task(run).error_message.startswith("stalled 3 times in a row")
    assert house.outcomes(run) == house.kept("stalled", "stalled", "stalled")
    assert not house.queue(flow)


def test_deaths_count_in_a_row_only(house: House) -> None:
    house.set("crash_limit", 2)
    flow = house.flow(max_attempts=9)
    run = house.start(flow)
    worker = house.worker(flow)

    for _ in range(3):
        house.claim(flow, worker)
        assert house.crashed(worker) == 1
        assert house.fail(house.claim_one(flow, worker)) == "queued"

    assert house.run_status(run) == "started"


def test_a_task_at_the_crash_limit_is_left_to_the_sweeper(house: House) -> None:
    house.set("crash_limit", 1)
    flow = house.flow()
    run = house.start(flow)
    house.lapse(house.claim_one(flow, house.worker(flow)))

    assert house.claim(flow, house.worker(flow)) == []
    assert house.recover() == 0

    assert house.run_status(run) == "failed"


def test_a_sweep_does_not_wait_for_a_locked_run(any_core: House) -> None:
    house = any_core
    house.set("crash_limit", 1)
    flow = house.flow()
    run = house.start(flow)
    house.lapse(house.claim_one(flow, house.worker(flow)))
    holder, sweeper = house.connect(), house.connect()
    sweeper.execute("set lock_timeout = '100ms'")

    with holder.transaction():
        holder.execute("select from pgflow.runs where run_id = %s for update", (run,))
        assert house.recover(conn=sweeper) == 0
    assert house.run_status(run) == "started"

    house.recover()
    assert house.run_status(run) == "failed"


def test_an_unfenced_workers_task_is_stalled_after_its_timeout_and_the_threshold(
    house: House,
) -> None:
    flow = house.flow(timeout=60)
    run = house.start(flow)
    (task,) = house.upstream_claim(flow, house.worker(flow))

    house.age(task, "100 s")
    assert house.recover("60 s") == 0
    assert house.recover("30 s") == 1

    assert house.task(run).status == "queued"
    assert house.outcomes(run) == ["stalled"]


def test_an_unfenced_workers_task_is_given_back_three_times_and_then_fails(house: House) -> None:
    flow = house.flow(max_attempts=9)
    run = house.start(flow)
    worker = house.worker(flow)
    (msg_id,) = house.queue(flow)

    for time in range(4):
        house.do("select pgmq.set_vt(%s, %s, 0)", flow, msg_id)
        (task,) = house.upstream_claim(flow, worker)
        house.age(task, "1 hour")
        assert house.recover() == (1 if time < 3 else 0)

    assert house.run_status(run) == "failed"
    assert "given back 3 times" in house.task(run).error_message
    assert not house.queue(flow)


def test_a_sweep_tells_what_it_recovered_and_what_it_gave_up(any_core: House) -> None:
    house = any_core
    house.set("crash_limit", 4)
    ours, theirs = house.flow(max_attempts=9), house.flow(max_attempts=9)
    runs = [house.start(ours), house.start(theirs)]
    workers = [house.worker(ours), house.worker(theirs)]
    (msg_id,) = house.queue(theirs)

    for time in range(4):
        house.do("select pgmq.set_vt(%s, %s, 0)", theirs, msg_id)
        house.lapse(house.claim_one(ours, workers[0]))
        house.age(house.upstream_claim(theirs, workers[1])[0], "1 hour")
        assert house.sweep() == ((2, 0) if time < 3 else (0, 2))

    assert [house.run_status(run) for run in runs] == ["failed", "failed"]
    assert house.sweep() == (0, 0)


def test_a_sweep_of_the_dead_tells_what_it_gave_up(any_core: House) -> None:
    house = any_core
    house.set("crash_limit", 2)
    flow = house.flow(max_attempts=9)
    run = house.start(flow)
    worker = house.worker(flow)

    for expected in ((1, 0), (0, 1)):
        house.claim_one(flow, worker)
        assert house.row("select * from pgflowd.sweep_dead(%s, 'killed')", worker) == expected

    assert house.run_status(run) == "failed"


def notices(conn: Connection) -> list[tuple[str, str]]:
    """What sweeps on this connection will say: state and detail."""
    said: list[tuple[str, str]] = []
    conn.add_notice_handler(lambda notice: said.append((notice.sqlstate, notice.message_detail)))
    return said


def test_a_notice_tells_which_run_a_sweep_has_failed(any_core: House) -> None:
    house = any_core
    house.set("crash_limit", 1)
    flow = house.flow()
    run = house.start(flow)
    house.lapse(house.claim_one(flow, house.worker(flow)))
    said = notices(house.conn)

    assert house.sweep() == (0, 1)

    ((state, detail),) = said
    error = "stalled 1 times in a row, the last time because its lease lapsed"
    told = {"run": str(run), "flow": flow, "step": "a", "error": error}
    assert (state, json.loads(detail)) == ("PF011", told)


def test_a_run_that_goes_on_without_what_was_given_up_is_not_told(own: House) -> None:
    own.set("crash_limit", 1)
    flow = own.flow()
    own.do("update pgflow.steps set when_exhausted = 'skip' where flow_slug = %s", flow)
    run = own.start(flow)
    own.lapse(own.claim_one(flow, own.worker(flow)))
    said = notices(own.conn)

    assert own.sweep() == (0, 1)

    assert own.run_status(run) == "completed"
    assert said == []


def test_what_upstreams_recovery_gave_up_is_failed(any_core: House) -> None:
    house = any_core
    if house.core == "0.8":
        return  # it recovers nothing
    flow = house.flow()
    run = house.start(flow)
    (task,) = house.upstream_claim(flow, house.worker(flow))
    house.age(task, "1 hour")
    house.do("update pgflow.step_tasks set requeued_count = 3, permanently_stalled_at = now()")

    assert house.recover() == 0

    assert house.run_status(run) == "failed"


@pytest.mark.parametrize("leased", [False, True])
def test_what_any_recovery_gave_up_is_failed_though_its_message_is_archived(
    any_core: House, leased: bool
) -> None:
    house = any_core
    if house.core == "0.8":
        return  # it recovers nothing
    flow = house.flow(max_attempts=9)
    run = house.start(flow)
    worker = house.worker(flow)
    task = house.claim_one(flow, worker) if leased else house.upstream_claim(flow, worker)[0]
    if leased:
        house.lapse(task)
    house.age(task, "1 hour")
    house.do("update pgflow.step_tasks set requeued_count = 3")
    house.do("select pgflow.requeue_stalled_tasks()")
    assert not house.queue(flow)

    assert house.recover() == 0

    assert house.run_status(run) == "failed"


@covers("row 86")
def test_upstreams_recovery_takes_nothing_that_we_beat_for(any_core: House) -> None:
    house = any_core
    if house.core == "0.8":
        return  # it recovers nothing
    flow = house.flow(timeout=60)
    house.start(flow)
    worker = house.worker(flow)
    task = house.claim_one(flow, worker)
    house.age(task, "1 hour")

    house.beat(worker, task)

    assert house.value("select pgflow.requeue_stalled_tasks()") == 0
    assert house.complete(task) == "completed"


def test_a_beat_takes_back_what_upstreams_recovery_put_back(any_core: House) -> None:
    house = any_core
    flow = house.flow()
    run = house.start(flow)
    worker = house.worker(flow)
    task = house.claim_one(flow, worker)
    house.do(
        "update pgflow.step_tasks set status = 'queued', started_at = null, last_worker_id = null"
    )

    assert house.beat(worker, task) == ["ok"]

    assert (house.task(run).status, house.task(run).last_worker_id) == ("started", worker)
    assert house.complete(task) == "completed"


def test_a_task_put_back_and_not_claimed_since_may_report(house: House) -> None:
    flow = house.flow()
    run = house.start(flow)
    task = house.claim_one(flow, house.worker(flow))
    house.do(
        "update pgflow.step_tasks set status = 'queued', started_at = null, last_worker_id = null"
    )

    assert house.complete(task) == "completed"

    assert house.run_status(run) == "completed"


def test_a_lost_attempt_of_an_ended_run_is_closed_and_its_task_left(any_core: House) -> None:
    house = any_core
    flow = house.flow("a", "b", max_attempts=1)
    run = house.start(flow)
    worker = house.worker(flow)
    one, other = house.claim(flow, worker)
    house.fail(one)
    house.lapse(other)

    assert house.recover() == 0
    assert house.crashed(worker) == 0

    assert house.run_status(run) == "failed"
    assert house.task(run, other.step_slug).status != "queued"
