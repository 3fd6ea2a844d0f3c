"""
Time: leases last by the server's clock, rows by the transaction's, and neither trips the other.
"""

from __future__ import annotations

from support.leases import House


def test_a_claim_skips_a_task_queued_after_its_transaction_began(house: House) -> None:
    flow = house.flow()
    worker = house.worker(flow)
    older = house.connect()

    with older.transaction():
        older.execute("select now()")
        run = house.start(flow)
        assert house.claim(flow, worker, conn=older) == []

    (message,) = house.queue(flow).values()
    assert message.visible
    assert house.claim_one(flow, worker).run_id == run


def test_the_claim_in_a_reports_transaction_sees_what_the_report_made_ready(house: House) -> None:
    flow = house.flow("a", "b:a", "c:b")
    house.start(flow)
    worker = house.worker(flow)
    conn = house.connect()
    (task,) = house.claim(flow, worker)

    trips = 1
    while task is not None:
        with conn.transaction():
            house.complete(task, conn=conn)
            task = next(iter(house.claim(flow, worker, conn=conn)), None)
        trips += 1

    assert trips == 4


def test_a_completion_older_than_a_beat_passes(house: House) -> None:
    flow = house.flow()
    run = house.start(flow)
    worker = house.worker(flow)
    task = house.claim_one(flow, worker)
    house.age(task, "1 minute")
    older = house.connect()

    with older.transaction():
        older.execute("select now()")
        assert house.beat(worker, task) == ["ok"]
        assert house.complete(task, conn=older) == "completed"

    assert house.run_status(run) == "completed"


def test_a_completion_shows_when_the_attempt_began_and_not_its_last_beat(house: House) -> None:
    flow = house.flow()
    run = house.start(flow)
    worker = house.worker(flow)
    task = house.claim_one(flow, worker)
    house.age(task, "1 hour")
    began = house.task(run).started_at

    house.beat(worker, task)
    assert house.task(run).started_at > began
    house.complete(task)

    assert house.task(run).started_at == began


def test_a_beat_never_shortens(house: House) -> None:
    flow = house.flow()
    house.start(flow)
    worker = house.worker(flow)
    task = house.claim_one(flow, worker, lease="1 hour")
    before = (
        house.value("select lease_until from pgflowd.attempts"),
        house.queue(flow)[task.msg_id].vt,
    )

    assert house.beat(worker, task, lease="1 s") == ["ok"]

    after = (
        house.value("select lease_until from pgflowd.attempts"),
        house.queue(flow)[task.msg_id].vt,
    )
    assert after == before


def test_a_beat_extends_lease_and_visibility(house: House) -> None:
    flow = house.flow()
    house.start(flow)
    worker = house.worker(flow)
    task = house.claim_one(flow, worker, lease="1 s")

    house.beat(worker, task, lease="1 hour")

    later = "lease_until > now() + interval '59 minutes'"
    assert house.value(f"select {later} from pgflowd.attempts")
    lease_until = house.value("select lease_until from pgflowd.attempts")
    assert house.queue(flow)[task.msg_id].vt >= lease_until


def test_a_message_is_hidden_at_least_as_long_as_the_lease_lasts(house: House) -> None:
    flow = house.flow("a", "b")
    house.start(flow)

    for lease in ("1500 ms", "30 s"):
        task = house.claim_one(flow, house.worker(flow), max_tasks=1, lease=lease)
        assert house.queue(flow)[task.msg_id].vt >= task.lease_until


def test_a_worker_that_will_not_beat_holds_a_task_for_its_timeout(house: House) -> None:
    flow = house.flow("a", "b", timeout=10)
    house.do(
        "update pgflow.steps set opt_timeout = 100 where flow_slug = %s and step_slug = 'b'", flow
    )
    house.start(flow)

    tasks = house.claim(flow, house.worker(flow), lease=None)

    lasts = {task.step_slug: (task.lease_until - task_started(house, task)) for task in tasks}
    hidden = {
        task.step_slug: house.queue(flow)[task.msg_id].vt - task.lease_until for task in tasks
    }
    assert round(lasts["a"].total_seconds()) == 12
    assert round(lasts["b"].total_seconds()) == 102
    assert min(hidden.values()).total_seconds() >= 0


def task_started(house: House, task: object) -> object:
    return house.task(task.run_id, task.step_slug).started_at  # type: ignore[attr-defined]
